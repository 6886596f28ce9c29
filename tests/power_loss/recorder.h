/* What the recorder's two halves share: the trace (recorder.c) and the calls that go into it. */

#ifndef CRASH_RECORDER_H
#define CRASH_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers and meanings as in trace.py. */
enum kind {
    CREATE = 1, MAKE_DIRECTORY, REMOVE_DIRECTORY, LINK, UNLINK, RENAME, SIZE, WRITE, SYNC_FILE,
    SYNC_RANGE, SYNC_DIRECTORY, SYNC_ALL, SYNC_FAILED, MARK, NO_BLOCK
};

/* begin() takes the lock and writes down what was stored through mappings; end() gives the lock back.
 * Everything below belongs between the two. */
void begin(void);
void end(void);
void event(enum kind kind, int64_t file, int64_t first, int64_t second, const void *data,
           size_t size);
void named(enum kind kind, int64_t file, const char *path);
bool below_root(const char *path);
int64_t number_of(int fd, bool *directory);
int64_t number_of_path(const char *path);
bool allocate(int64_t file, int64_t from, int64_t to);
void punched(int64_t file, int64_t from, int64_t to);
void release(int64_t file);
void refresh(int64_t file, int64_t offset, const uint8_t *data, int64_t size);
void add_mapping(void *base, size_t size, int64_t file, int64_t offset);
void remove_mapping(const void *base);
bool find_mapping(const void *base, int64_t *file, int64_t *offset);
/* Whether the next sync of this file is to fail, and one failure less is left. */
bool sync_fails(int64_t file);
/* Not under the lock: a sync takes its time, so that others act meanwhile. */
void sync_pause(void);

#endif
