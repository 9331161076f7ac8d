/* A disk that refuses: loaded before the C library (LD_PRELOAD), it lets one call on regular files fail, or that one and all
 * after it. FAILING_CALL is "CALL ERRNO NTH TIMES", where 0 times is for ever. Calls of all threads are counted together. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char call[32];
static int number, nth, times;
static atomic_int seen;

__attribute__((constructor)) static void read_setting(void) {
    const char *setting = getenv("FAILING_CALL");
    if (!setting || sscanf(setting, "%31s %d %d %d", call, &number, &nth, &times) != 4) call[0] = 0;
}

static int fails(const char *name, int file) {
    struct stat found;
    if (strcmp(name, call) || fstat(file, &found) || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 0;
    int now = ++seen;
    if (now < nth || (times && now >= nth + times)) return 0;
    errno = number;
    return 1;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *bytes, size_t length) {
    REAL(write);
    return file > 2 && fails("write", file) ? -1 : real(file, bytes, length);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) {
    REAL(pwrite64);
    return fails("pwrite", file) ? -1 : real(file, bytes, length, at);
}

int fsync(int file) {
    REAL(fsync);
    return fails("fsync", file) ? -1 : real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    return fails("fdatasync", file) ? -1 : real(file);
}

int sync_file_range(int file, off64_t at, off64_t length, unsigned int flags) {
    REAL(sync_file_range);
    return fails("sync_file_range", file) ? -1 : real(file, at, length, flags);
}
