/* A driver for fuzz targets where there is no libFuzzer: plain C, any compiler.
 *
 *     TARGET [-runs=N] [-max_total_time=SECONDS] [-seed=S] FILE_OR_DIRECTORY …
 *
 * Replays every file, then runs N mutations of them, or as many as fit in the time. Run k depends on
 * (seed, k, inputs) alone, so a failure repeats with the seed that is printed first. Each input is given
 * in a block of its exact size. What was running when the process dies is left in `crash.bin`. */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { INPUTS_MAX = 65536, INPUT_SIZE_MAX = 1 << 20, MUTATIONS_MAX = 8 };

typedef struct input {
    uint8_t *bytes;
    size_t size;
} input;

static input inputs[INPUTS_MAX];
static size_t input_count;
static const uint8_t *running;
static size_t running_size;
static uint64_t state;

__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void save_running(void)
{
    int file = open("crash.bin", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || !running)
        return;
    if (write(file, running, running_size) != (ssize_t)running_size)
        (void)!write(2, "crash.bin is not complete\n", 26);
    close(file);
}

static void on_abort(int number)
{
    save_running();
    signal(number, SIG_DFL);
    raise(number);
}

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "%s: %s: %s\n", path, what, strerror(errno));
    exit(2);
}

static void load_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail("cannot be opened", path);
    if (input_count == INPUTS_MAX || size > INPUT_SIZE_MAX) {
        errno = EFBIG;
        fail("too many or too large inputs", path);
    }
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes || fread(bytes, 1, size, file) != size)
        fail("cannot be read", path);
    fclose(file);
    inputs[input_count++] = (input){bytes, size};
}

static void load(const char *path)
{
    struct stat about;
    struct dirent **entries;
    if (stat(path, &about) != 0)
        fail("cannot be read", path);
    if (!S_ISDIR(about.st_mode)) {
        load_file(path, (size_t)about.st_size);
        return;
    }
    int count = scandir(path, &entries, NULL, alphasort); /* sorted: runs must repeat */
    if (count < 0)
        fail("cannot be listed", path);
    for (int i = 0; i < count; i++) {
        char below[4096];
        int length = snprintf(below, sizeof below, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && length > 0 && length < (int)sizeof below)
            load(below);
        free(entries[i]);
    }
    free(entries);
}

/* splitmix64 */
static uint64_t next_random(void)
{
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t below(size_t limit)
{
    return limit ? (size_t)(next_random() % limit) : 0;
}

/* A length that parsers stumble over, as a big-endian field of 1, 2, 4 or 8 bytes. */
static void plant_number(uint8_t *bytes, size_t size)
{
    static const uint64_t numbers[] = {
        0, 1, 2, 7, 8, 20, 90, 91, 127, 128, 255, 256, 0x7FFE, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
        0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, INT64_MAX, (uint64_t)INT64_MIN, UINT64_MAX,
    };
    size_t width = (size_t)1 << below(4);
    if (size < width)
        return;
    uint64_t number = numbers[below(sizeof numbers / sizeof *numbers)];
    if (below(4) == 0)
        number = size - below(4); /* one off from the truth */
    uint8_t *at = bytes + below(size - width + 1);
    for (size_t i = 0; i < width; i++)
        at[i] = (uint8_t)(number >> 8 * (width - 1 - i));
}

/* One change; `bytes` has room for INPUT_SIZE_MAX. Returns the new size. */
static size_t mutate(uint8_t *bytes, size_t size)
{
    const input other = inputs[below(input_count)];
    size_t at = below(size + 1), count = below(size < 64 ? size + 1 : 64);
    switch (below(8)) {
    case 0:
        if (size)
            bytes[below(size)] ^= (uint8_t)(1u << below(8));
        return size;
    case 1:
        if (size)
            bytes[below(size)] = (uint8_t)next_random();
        return size;
    case 2:
    case 3:
        plant_number(bytes, size);
        return size;
    case 4: /* cut the end off */
        return at;
    case 5: /* take bytes out */
        if (count > size - at)
            count = size - at;
        memmove(bytes + at, bytes + at + count, size - at - count);
        return size - count;
    case 6: /* put bytes in: noise, or separators and zeros */
        count = 1 + below(32);
        if (size + count > INPUT_SIZE_MAX)
            return size;
        memmove(bytes + at + count, bytes + at, size - at);
        for (size_t i = 0; i < count; i++)
            bytes[at + i] = (uint8_t)(below(2) ? next_random() : below(3));
        return size + count;
    default: /* go on with another input */
        count = below(other.size + 1);
        if (at + count > INPUT_SIZE_MAX)
            return size;
        memcpy(bytes + at, other.bytes + other.size - count, count);
        return at + count > size ? at + count : size;
    }
}

static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *copy = exact_copy(data, size);
    running = data;
    running_size = size;
    LLVMFuzzerTestOneInput(copy, size);
    running = NULL;
    free(copy);
}

static void run_mutation(uint8_t *scratch)
{
    const input start = inputs[below(input_count)];
    size_t size = start.size;
    memcpy(scratch, start.bytes, size);
    for (size_t changes = 1 + below(MUTATIONS_MAX); changes; changes--)
        size = mutate(scratch, size);
    run_one(scratch, size);
}

int main(int count, char **arguments)
{
    uint64_t runs = 0, seconds = 0, run = 0, seed = (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
    static uint8_t scratch[INPUT_SIZE_MAX];
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(save_running);
    signal(SIGABRT, on_abort);
    for (int i = 1; i < count; i++) {
        if (strncmp(arguments[i], "-runs=", 6) == 0)
            runs = strtoull(arguments[i] + 6, NULL, 10);
        else if (strncmp(arguments[i], "-seed=", 6) == 0)
            seed = strtoull(arguments[i] + 6, NULL, 10);
        else if (strncmp(arguments[i], "-max_total_time=", 16) == 0)
            seconds = strtoull(arguments[i] + 16, NULL, 10);
        else
            load(arguments[i]);
    }
    if (!input_count)
        inputs[input_count++] = (input){(uint8_t *)"", 0};
    printf("seed %llu, %zu inputs, %llu runs\n", (unsigned long long)seed, input_count,
           (unsigned long long)runs);
    fflush(stdout);
    for (size_t i = 0; i < input_count; i++)
        run_one(inputs[i].bytes, inputs[i].size);
    const time_t start = time(NULL);
    for (; seconds ? (uint64_t)(time(NULL) - start) < seconds : run < runs; run++) {
        state = seed * 0x9E3779B97F4A7C15u + run;
        run_mutation(scratch);
    }
    printf("done: %llu runs\n", (unsigned long long)run);
    return 0;
}
