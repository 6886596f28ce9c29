/* Preloaded into a process: writes down what it does to the files below one directory, in one order.
 *
 * Stores through shared mappings are found by comparing each mapping with a shadow copy before every event.
 * An event: five numbers and a payload, as in trace.py. Nothing is recorded until record_begin(). */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder.h"

#define PAGE 4096
#define MAPPINGS_MAX 1024
#define PAGES_MAX 4096
#define FILES_MAX 1024
#define EXPORTED __attribute__((visibility("default")))

struct mapping {
    uint8_t *base, *shadow;
    size_t size;
    int64_t file, offset;
};

/* Which pages of a file have blocks; only while the disk has a limit. */
struct blocks {
    int64_t file;
    uint8_t has[PAGES_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static size_t root_length;
static dev_t root_device;
static int trace = -1;
static struct mapping mappings[MAPPINGS_MAX];
static int mapping_count;
static struct blocks *files;
static int file_count;
static int64_t free_pages = -1; /* -1: no limit */
static int64_t failing_file, failures_left;
static unsigned slow_sync_us;

/* ---- the trace ---- */

static uint8_t buffer[1 << 20];
static size_t buffered;

static void put_out(const void *data, size_t size)
{
    const uint8_t *at = data;
    while (size > 0) {
        ssize_t wrote = write(trace, at, size);
        if (wrote <= 0)
            abort();
        at += wrote;
        size -= (size_t)wrote;
    }
}

static void add(const void *data, size_t size)
{
    if (buffered + size > sizeof buffer) {
        put_out(buffer, buffered);
        buffered = 0;
    }
    if (size > sizeof buffer) {
        put_out(data, size);
        return;
    }
    memcpy(buffer + buffered, data, size);
    buffered += size;
}

void event(enum kind kind, int64_t file, int64_t first, int64_t second, const void *data,
           size_t size)
{
    int64_t head[5] = {kind, file, first, second, (int64_t)size};
    add(head, sizeof head);
    add(data, size);
}

/* ---- blocks of a disk with a limit ---- */

static struct blocks *blocks_of(int64_t file)
{
    for (int n = 0; n < file_count; n++)
        if (files[n].file == file)
            return &files[n];
    if (file_count == FILES_MAX)
        abort();
    memset(&files[file_count], 0, sizeof *files);
    files[file_count].file = file;
    return &files[file_count++];
}

/* Gives blocks to all pages of [from, to), or to none. */
bool allocate(int64_t file, int64_t from, int64_t to)
{
    if (free_pages < 0 || from >= to)
        return true;
    struct blocks *blocks = blocks_of(file);
    int64_t wanted = 0, last = (to + PAGE - 1) / PAGE;
    if (last > PAGES_MAX)
        abort();
    for (int64_t page = from / PAGE; page < last; page++)
        wanted += !blocks->has[page];
    if (wanted > free_pages)
        return false;
    free_pages -= wanted;
    memset(blocks->has + from / PAGE, 1, (size_t)(last - from / PAGE));
    return true;
}

void release(int64_t file)
{
    if (free_pages < 0)
        return;
    struct blocks *blocks = blocks_of(file);
    for (int page = 0; page < PAGES_MAX; page++)
        free_pages += blocks->has[page];
    blocks->file = -1;
}

/* [from, to) was made zeros; its whole pages have no blocks any more. */
void punched(int64_t file, int64_t from, int64_t to)
{
    static const uint8_t zeros[PAGE];
    for (int64_t at = from, size; at < to; at += size) {
        size = to - at < PAGE ? to - at : PAGE;
        event(WRITE, file, at, 0, zeros, (size_t)size);
        refresh(file, at, zeros, size);
    }
    if (free_pages < 0)
        return;
    struct blocks *blocks = blocks_of(file);
    for (int64_t page = (from + PAGE - 1) / PAGE; page < to / PAGE; page++) {
        free_pages += blocks->has[page];
        blocks->has[page] = 0;
    }
}

/* ---- mappings ---- */

static void capture_one(struct mapping *mapping)
{
    for (size_t at = 0; at < mapping->size; at += PAGE) {
        size_t size = mapping->size - at < PAGE ? mapping->size - at : PAGE;
        if (memcmp(mapping->base + at, mapping->shadow + at, size) == 0)
            continue;
        memcpy(mapping->shadow + at, mapping->base + at, size);
        int64_t offset = mapping->offset + (int64_t)at;
        if (!allocate(mapping->file, offset, offset + (int64_t)size))
            event(NO_BLOCK, mapping->file, offset, 0, NULL, 0);
        event(WRITE, mapping->file, offset, 0, mapping->shadow + at, size);
    }
}

static void capture(void)
{
    for (int n = 0; n < mapping_count; n++)
        capture_one(&mappings[n]);
}

/* What was written by a call is no store through a mapping. */
void refresh(int64_t file, int64_t offset, const uint8_t *data, int64_t size)
{
    for (int n = 0; n < mapping_count; n++) {
        struct mapping *mapping = &mappings[n];
        int64_t from = offset - mapping->offset, to = from + size;
        if (mapping->file != file || to <= 0 || from >= (int64_t)mapping->size)
            continue;
        int64_t low = from < 0 ? 0 : from;
        int64_t high = to > (int64_t)mapping->size ? (int64_t)mapping->size : to;
        memcpy(mapping->shadow + low, data + (low - from), (size_t)(high - low));
    }
}

void add_mapping(void *base, size_t size, int64_t file, int64_t offset)
{
    if (mapping_count == MAPPINGS_MAX)
        abort();
    struct mapping *mapping = &mappings[mapping_count++];
    *mapping = (struct mapping){base, malloc(size), size, file, offset};
    if (mapping->shadow == NULL)
        abort();
    memcpy(mapping->shadow, base, size);
}

void remove_mapping(const void *base)
{
    for (int n = 0; n < mapping_count; n++) {
        if (mappings[n].base == base) {
            free(mappings[n].shadow);
            mappings[n] = mappings[--mapping_count];
            return;
        }
    }
}

bool find_mapping(const void *base, int64_t *file, int64_t *offset)
{
    for (int n = 0; n < mapping_count; n++) {
        const struct mapping *mapping = &mappings[n];
        const uint8_t *at = base;
        if (mapping->base <= at && at < mapping->base + mapping->size) {
            *file = mapping->file;
            *offset = mapping->offset + (at - mapping->base);
            return true;
        }
    }
    return false;
}

/* ---- what is recorded ---- */

void begin(void)
{
    pthread_mutex_lock(&lock);
    if (trace >= 0)
        capture();
}

void end(void)
{
    pthread_mutex_unlock(&lock);
}

bool below_root(const char *path)
{
    return trace >= 0 && strncmp(path, root, root_length) == 0 && path[root_length] == '/';
}

/* The number of the file behind a descriptor, -1 for one that is not recorded. */
int64_t number_of(int fd, bool *directory)
{
    struct stat found;
    int before = errno;
    int64_t number = -1;
    if (trace >= 0 && fd >= 0 && fstat(fd, &found) == 0 && found.st_dev == root_device
        && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) {
        number = (int64_t)found.st_ino;
        if (directory != NULL)
            *directory = S_ISDIR(found.st_mode);
    }
    errno = before;
    return number;
}

int64_t number_of_path(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (int64_t)found.st_ino : -1;
}

bool sync_fails(int64_t file)
{
    if (file != failing_file || failures_left <= 0)
        return false;
    failures_left--;
    return true;
}

void sync_pause(void)
{
    if (slow_sync_us > 0)
        usleep(slow_sync_us);
}

void named(enum kind kind, int64_t file, const char *path)
{
    event(kind, file, 0, 0, path + root_length + 1, strlen(path + root_length + 1));
}

/* ---- control, by ctypes ---- */

EXPORTED int record_begin(const char *directory, const char *path, int64_t limit_bytes);
EXPORTED void record_end(void);
EXPORTED void record_mark(const void *data, size_t size);
EXPORTED void record_fail_syncs(int64_t file, int64_t count);
EXPORTED void record_slow_syncs(unsigned microseconds);

int record_begin(const char *directory, const char *path, int64_t limit_bytes)
{
    struct stat found;
    if (stat(directory, &found) != 0 || strlen(directory) >= sizeof root)
        return -1;
    if (files == NULL)
        files = malloc(FILES_MAX * sizeof *files);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || files == NULL)
        return -1;
    pthread_mutex_lock(&lock);
    strcpy(root, directory);
    root_length = strlen(root);
    root_device = found.st_dev;
    mapping_count = file_count = 0;
    free_pages = limit_bytes < 0 ? -1 : limit_bytes / PAGE;
    failures_left = 0;
    slow_sync_us = 0;
    trace = fd;
    pthread_mutex_unlock(&lock);
    return 0;
}

void record_end(void)
{
    begin();
    for (int n = 0; n < mapping_count; n++)
        free(mappings[n].shadow);
    mapping_count = 0;
    put_out(buffer, buffered);
    buffered = 0;
    close(trace);
    trace = -1;
    end();
}

void record_mark(const void *data, size_t size)
{
    begin();
    if (trace >= 0)
        event(MARK, 0, 0, 0, data, size);
    end();
}

void record_fail_syncs(int64_t file, int64_t count)
{
    begin();
    failing_file = file;
    failures_left = count;
    end();
}

void record_slow_syncs(unsigned microseconds)
{
    slow_sync_us = microseconds;
}
