/*
 * A file layer that forgets what was not synced: preloaded into the server, it plays the disk.
 *
 * Everything that the process does to the files of one flat directory (FILES_DIR) happens there as
 * usual. Beside it, in DISK_DIR, the layer keeps what a machine would find after a power cut:
 *
 *   <number>   the bytes of one file as of its last fsync or fdatasync
 *   entries    which name led to which file at the last fsync of the directory, one
 *              "<number> <name>" a line
 *
 * What was written since is only remembered in this process, and dies with it. So a power cut is
 * to kill the process and to go on with what DISK_DIR holds.
 *
 * A disk may also have written more than it was asked for, in any order. With DISK_SEED set, each
 * 512-byte sector of a write, each truncation and each change of the directory reaches the disk at
 * once with a probability of one half, chosen from that seed.
 *
 * DISK_SYNC_US is how long a sync takes. While the file DISK_FULL exists, nothing can be written
 * (ENOSPC); while DISK_BROKEN exists, no sync succeeds (EIO).
 *
 * What is not modelled ends the process with a message instead of being let through: a suite that
 * misses writes would prove nothing. Memory-mapped files count as never synced, which is right for
 * SQLite's -shm file and fatal for any other. Nothing here takes a descriptor of a file of its own
 * in FILES_DIR, because closing one would drop the locks that SQLite holds on that file.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define SECTOR_BYTES 512
#define FILES_MAX 4096
#define EXPORT __attribute__((visibility("default")))

/* One write since the last sync; without bytes, a change of the size to `at`. */
struct change {
    struct change *next;
    off_t at;
    size_t length;
    char bytes[];
};

/* One file in FILES_DIR, known by its inode while that exists. */
struct file {
    dev_t device;
    ino_t inode;
    int linked;
    int mapped_only;
    int disk;
    struct change *first;
    struct change **last;
};

static struct file files[FILES_MAX];
static int files_count;
static char files_dir[PATH_MAX];
static size_t files_dir_length;
static dev_t dir_device;
static ino_t dir_inode;
static int disk_dir = -1;
static const char *full_flag;
static const char *broken_flag;
static useconds_t sync_us;
static uint64_t chance;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static int (*real_ftruncate)(int, off_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_unlinkat)(int, const char *, int);
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_fallocate)(int, int, off_t, off_t);
static ssize_t (*real_copy_file_range)(int, off_t *, int, off_t *, size_t, unsigned);
static ssize_t (*real_sendfile)(int, int, off_t *, size_t);
static int (*real_linkat)(int, const char *, int, const char *, int);
static int (*real_truncate)(const char *, off_t);

static void give_up(const char *what, const char *which)
{
    dprintf(STDERR_FILENO, "the file layer of the power-cut suite: %s: %s (errno: %s)\n", what,
            which, strerror(errno));
    abort();
}

static void *find(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        give_up("no such function", name);
    return found;
}

/* Other libraries may write before our constructor has run. */
static void find_all(void)
{
    static int found;
    if (found)
        return;
    real_open = find("open");
    real_openat = find("openat");
    real_write = find("write");
    real_pwrite = find("pwrite");
    real_writev = find("writev");
    real_pwritev = find("pwritev");
    real_ftruncate = find("ftruncate");
    real_fsync = find("fsync");
    real_fdatasync = find("fdatasync");
    real_renameat = find("renameat");
    real_unlinkat = find("unlinkat");
    real_mmap = find("mmap");
    real_fallocate = find("fallocate");
    real_copy_file_range = find("copy_file_range");
    real_sendfile = find("sendfile");
    real_linkat = find("linkat");
    real_truncate = find("truncate");
    found = 1;
}

static int at_once(void)
{
    if (chance == 0)
        return 0;
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (chance >> 32) & 1;
}

static int flag_is_up(const char *flag)
{
    return flag != NULL && access(flag, F_OK) == 0;
}

static void to_disk(const struct file *file, const char *bytes, size_t length, off_t at)
{
    while (length > 0) {
        ssize_t written = real_pwrite(file->disk, bytes, length, at);
        if (written <= 0)
            give_up("the disk directory cannot be written", "pwrite");
        bytes += written;
        length -= (size_t)written;
        at += written;
    }
}

static void resize_on_disk(const struct file *file, off_t size)
{
    if (real_ftruncate(file->disk, size) != 0)
        give_up("the disk directory cannot be written", "ftruncate");
}

static struct file *file_of_inode(const struct stat *status)
{
    for (int i = 0; i < files_count; i++)
        if (files[i].linked && files[i].inode == status->st_ino &&
            files[i].device == status->st_dev)
            return &files[i];
    return NULL;
}

/* The file behind a descriptor, or NULL if it is none of ours. */
static struct file *file_of(int fd)
{
    struct stat status;
    int error = errno;
    struct file *file = NULL;
    if (disk_dir >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        file = file_of_inode(&status);
    errno = error;
    return file;
}

static int is_shared_memory(const char *name)
{
    size_t length = strlen(name);
    return length >= 4 && strcmp(name + length - 4, "-shm") == 0;
}

static struct file *add_file(const struct stat *status, const char *name)
{
    char number[16];
    if (files_count == FILES_MAX)
        give_up("too many files", name);
    struct file *file = &files[files_count];
    snprintf(number, sizeof number, "%d", files_count);
    file->disk = real_openat(disk_dir, number, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file->disk < 0)
        give_up("the disk directory cannot be written", number);
    file->device = status->st_dev;
    file->inode = status->st_ino;
    file->linked = 1;
    file->mapped_only = is_shared_memory(name);
    file->first = NULL;
    file->last = &file->first;
    files_count++;
    return file;
}

/* Writes the directory as it is now to the disk, whole or not at all. */
static void entries_to_disk(void)
{
    DIR *dir = opendir(files_dir);
    FILE *entries;
    int fd = real_openat(disk_dir, "entries.new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (dir == NULL || fd < 0 || (entries = fdopen(fd, "w")) == NULL)
        give_up("the entries cannot be written", files_dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat status;
        if (fstatat(dirfd(dir), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            S_ISDIR(status.st_mode) || is_shared_memory(entry->d_name))
            continue;
        struct file *file = file_of_inode(&status);
        if (file == NULL)
            give_up("a file came into being behind our back", entry->d_name);
        fprintf(entries, "%d %s\n", (int)(file - files), entry->d_name);
    }
    closedir(dir);
    if (fclose(entries) != 0 || real_renameat(disk_dir, "entries.new", disk_dir, "entries") != 0)
        give_up("the entries cannot be written", "entries");
}

/* What the directory holds at the start has been on the disk for long. */
static void take_stock(void)
{
    DIR *dir = opendir(files_dir);
    if (dir == NULL)
        give_up("FILES_DIR cannot be read", files_dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat status;
        char bytes[65536];
        if (fstatat(dirfd(dir), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            S_ISDIR(status.st_mode))
            continue;
        struct file *file = add_file(&status, entry->d_name);
        int fd = real_openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            give_up("a file cannot be read", entry->d_name);
        off_t at = 0;
        for (ssize_t got; (got = read(fd, bytes, sizeof bytes)) > 0; at += got)
            to_disk(file, bytes, (size_t)got, at);
        close(fd);
    }
    closedir(dir);
    entries_to_disk();
}

__attribute__((constructor)) static void begin(void)
{
    struct stat status;
    const char *dir = getenv("FILES_DIR");
    const char *disk = getenv("DISK_DIR");
    const char *seed = getenv("DISK_SEED");
    const char *delay = getenv("DISK_SYNC_US");
    find_all();
    if (dir == NULL || disk == NULL)
        give_up("FILES_DIR and DISK_DIR must be set", "environment");
    if (realpath(dir, files_dir) == NULL || stat(files_dir, &status) != 0)
        give_up("FILES_DIR is not there", dir);
    files_dir_length = strlen(files_dir);
    dir_device = status.st_dev;
    dir_inode = status.st_ino;
    disk_dir = real_open(disk, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (disk_dir < 0)
        give_up("DISK_DIR is not there", disk);
    full_flag = getenv("DISK_FULL");
    broken_flag = getenv("DISK_BROKEN");
    sync_us = delay == NULL ? 0 : (useconds_t)strtoul(delay, NULL, 10);
    take_stock();
    chance = seed == NULL ? 0 : strtoull(seed, NULL, 10) * 2654435769u | 1;
}

static void remember(struct file *file, const void *bytes, size_t length, off_t at)
{
    struct change *change = malloc(sizeof *change + (bytes == NULL ? 0 : length));
    if (change == NULL)
        give_up("no memory", "change");
    change->next = NULL;
    change->at = at;
    change->length = length;
    if (bytes != NULL)
        memcpy(change->bytes, bytes, length);
    *file->last = change;
    file->last = &change->next;
}

static void written(struct file *file, const char *bytes, size_t length, off_t at)
{
    if (length == 0)
        return;
    remember(file, bytes, length, at);
    for (size_t done = 0; done < length;) {
        size_t part = SECTOR_BYTES - (size_t)((at + (off_t)done) % SECTOR_BYTES);
        if (part > length - done)
            part = length - done;
        if (at_once())
            to_disk(file, bytes + done, part, at + (off_t)done);
        done += part;
    }
}

static void resized(struct file *file, off_t size)
{
    remember(file, NULL, 0, size);
    if (at_once())
        resize_on_disk(file, size);
}

static void synced(struct file *file)
{
    while (file->first != NULL) {
        struct change *change = file->first;
        if (change->length == 0)
            resize_on_disk(file, change->at);
        else
            to_disk(file, change->bytes, change->length, change->at);
        file->first = change->next;
        free(change);
    }
    file->last = &file->first;
}

static void directory_changed(void)
{
    if (at_once())
        entries_to_disk();
}

/* Looks at a descriptor that was just opened: is it a file of ours, perhaps a new one? */
static int opened(int fd, int flags)
{
    char link[64], path[PATH_MAX];
    struct stat status;
    int error = errno;
    if (fd < 0 || disk_dir < 0)
        return fd;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > (ssize_t)files_dir_length && path[files_dir_length] == '/' &&
        memcmp(path, files_dir, files_dir_length) == 0) {
        path[length] = 0;
        const char *name = path + files_dir_length + 1;
        int nameless = (flags & O_TMPFILE) == O_TMPFILE;
        if (strchr(name, '/') != NULL || strchr(name, '\n') != NULL || nameless)
            give_up("only plain files directly in FILES_DIR are modelled", path);
        if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
            struct file *file = file_of_inode(&status);
            if (file == NULL) {
                add_file(&status, name);
                directory_changed();
            } else if (flags & O_TRUNC) {
                resized(file, 0);
            }
        }
    }
    errno = error;
    return fd;
}

static int mode_of(int flags, va_list arguments)
{
    int makes_a_file = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    return makes_a_file ? va_arg(arguments, int) : 0;
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = mode_of(flags, arguments);
    va_end(arguments);
    find_all();
    pthread_mutex_lock(&lock);
    int fd = opened(real_openat(dir, path, flags, mode), flags);
    pthread_mutex_unlock(&lock);
    return fd;
}

EXPORT int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = mode_of(flags, arguments);
    va_end(arguments);
    return openat(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = mode_of(flags, arguments);
    va_end(arguments);
    return openat(AT_FDCWD, path, flags, mode);
}

EXPORT int openat64(int dir, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = mode_of(flags, arguments);
    va_end(arguments);
    return openat(dir, path, flags, mode);
}

EXPORT int creat(const char *path, mode_t mode)
{
    return openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

EXPORT int creat64(const char *path, mode_t mode)
{
    return creat(path, mode);
}

/* The forms that a hardened C library's headers call. */
EXPORT int __open_2(const char *path, int flags)
{
    return openat(AT_FDCWD, path, flags);
}

EXPORT int __open64_2(const char *path, int flags)
{
    return openat(AT_FDCWD, path, flags);
}

EXPORT int __openat_2(int dir, const char *path, int flags)
{
    return openat(dir, path, flags);
}

EXPORT int __openat64_2(int dir, const char *path, int flags)
{
    return openat(dir, path, flags);
}

/* Begins a write: the locked file, or NULL if the descriptor is none of ours. */
static struct file *write_begins(int fd)
{
    find_all();
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd);
    if (file == NULL)
        pthread_mutex_unlock(&lock);
    return file;
}

static int is_full(void)
{
    if (!flag_is_up(full_flag))
        return 0;
    errno = ENOSPC;
    return 1;
}

/* Where the bytes went that were just written at the descriptor's own position. */
static off_t written_at(int fd, ssize_t length)
{
    off_t end = lseek(fd, 0, SEEK_CUR);
    if (end < 0)
        give_up("a file has no position", "lseek");
    return end - (off_t)length;
}

EXPORT ssize_t write(int fd, const void *bytes, size_t length)
{
    struct file *file = write_begins(fd);
    if (file == NULL)
        return real_write(fd, bytes, length);
    ssize_t done = is_full() ? -1 : real_write(fd, bytes, length);
    if (done > 0)
        written(file, bytes, (size_t)done, written_at(fd, done));
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at)
{
    struct file *file = write_begins(fd);
    if (file == NULL)
        return real_pwrite(fd, bytes, length, at);
    ssize_t done = is_full() ? -1 : real_pwrite(fd, bytes, length, at);
    if (done > 0)
        written(file, bytes, (size_t)done, at);
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    return pwrite(fd, bytes, length, at);
}

static void written_parts(struct file *file, const struct iovec *parts, ssize_t done, off_t at)
{
    for (; done > 0; parts++) {
        size_t length = parts->iov_len < (size_t)done ? parts->iov_len : (size_t)done;
        written(file, parts->iov_base, length, at);
        at += (off_t)length;
        done -= (ssize_t)length;
    }
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    struct file *file = write_begins(fd);
    if (file == NULL)
        return real_writev(fd, parts, count);
    ssize_t done = is_full() ? -1 : real_writev(fd, parts, count);
    if (done > 0)
        written_parts(file, parts, done, written_at(fd, done));
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    struct file *file = write_begins(fd);
    if (file == NULL)
        return real_pwritev(fd, parts, count, at);
    ssize_t done = is_full() ? -1 : real_pwritev(fd, parts, count, at);
    if (done > 0)
        written_parts(file, parts, done, at);
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
    return pwritev(fd, parts, count, at);
}

EXPORT int ftruncate(int fd, off_t size)
{
    struct file *file = write_begins(fd);
    if (file == NULL)
        return real_ftruncate(fd, size);
    int failed = real_ftruncate(fd, size);
    if (!failed)
        resized(file, size);
    pthread_mutex_unlock(&lock);
    return failed;
}

EXPORT int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, size);
}

/*
 * The disk directory is the disk: the process is killed and the machine is not, so a real sync
 * would add nothing but the speed of this machine.
 */
static int sync_of(int fd, int (*real)(int))
{
    struct stat status;
    find_all();
    int directory = disk_dir >= 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode) &&
                    status.st_dev == dir_device && status.st_ino == dir_inode;
    if (!directory && file_of(fd) == NULL)
        return real(fd);
    if (sync_us > 0)
        usleep(sync_us);
    if (flag_is_up(broken_flag)) {
        errno = EIO;
        return -1;
    }
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd);
    if (directory)
        entries_to_disk();
    else if (file != NULL)
        synced(file);
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int fsync(int fd)
{
    return sync_of(fd, real_fsync);
}

EXPORT int fdatasync(int fd)
{
    return sync_of(fd, real_fdatasync);
}

/* Starts writing and promises nothing: what is not synced stays so. */
EXPORT int sync_file_range(int fd, off64_t at, off64_t length, unsigned flags)
{
    (void)fd, (void)at, (void)length, (void)flags;
    return 0;
}

/* The file that a name leads to, if it is ours and this is its last name. */
static struct file *file_named(int dir, const char *path)
{
    struct stat status;
    if (disk_dir < 0 || fstatat(dir, path, &status, AT_SYMLINK_NOFOLLOW) != 0)
        return NULL;
    struct file *file = file_of_inode(&status);
    if (file != NULL && status.st_nlink != 1)
        give_up("files of several names are not modelled", path);
    return file;
}

EXPORT int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    find_all();
    pthread_mutex_lock(&lock);
    struct file *moved = file_named(from_dir, from);
    struct file *replaced = file_named(to_dir, to);
    int failed = real_renameat(from_dir, from, to_dir, to);
    if (!failed && replaced != NULL && replaced != moved)
        replaced->linked = 0;
    if (!failed && (moved != NULL || replaced != NULL))
        directory_changed();
    pthread_mutex_unlock(&lock);
    return failed;
}

EXPORT int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

EXPORT int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    if (flags != 0)
        give_up("renameat2 with flags is not modelled", from);
    return renameat(from_dir, from, to_dir, to);
}

EXPORT int unlinkat(int dir, const char *path, int flags)
{
    find_all();
    pthread_mutex_lock(&lock);
    struct file *removed = file_named(dir, path);
    int failed = real_unlinkat(dir, path, flags);
    if (!failed && removed != NULL) {
        removed->linked = 0;
        directory_changed();
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

EXPORT int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

EXPORT int remove(const char *path)
{
    int failed = unlinkat(AT_FDCWD, path, 0);
    return failed && errno == EISDIR ? unlinkat(AT_FDCWD, path, AT_REMOVEDIR) : failed;
}

/* From here on: what is not modelled. */

EXPORT void *mmap(void *address, size_t length, int protection, int flags, int fd, off_t at)
{
    find_all();
    struct file *file = fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE)
                            ? file_of(fd)
                            : NULL;
    if (file != NULL && !file->mapped_only)
        give_up("writing through a mapping is not modelled", "mmap");
    return real_mmap(address, length, protection, flags, fd, at);
}

EXPORT void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t at)
{
    return mmap(address, length, protection, flags, fd, at);
}

static void refuse(int fd, const char *what)
{
    find_all();
    if (file_of(fd) != NULL)
        give_up("this call is not modelled", what);
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t length)
{
    refuse(fd, "fallocate");
    return real_fallocate(fd, mode, at, length);
}

EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t length)
{
    return fallocate(fd, mode, at, length);
}

EXPORT int posix_fallocate(int fd, off_t at, off_t length)
{
    return fallocate(fd, 0, at, length) == 0 ? 0 : errno;
}

EXPORT int posix_fallocate64(int fd, off64_t at, off64_t length)
{
    return posix_fallocate(fd, at, length);
}

EXPORT ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t length,
                               unsigned flags)
{
    refuse(to, "copy_file_range");
    return real_copy_file_range(from, from_at, to, to_at, length, flags);
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t length)
{
    refuse(to, "sendfile");
    return real_sendfile(to, from, at, length);
}

EXPORT ssize_t sendfile64(int to, int from, off64_t *at, size_t length)
{
    return sendfile(to, from, at, length);
}

EXPORT int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    find_all();
    if (file_named(from_dir, from) != NULL)
        give_up("files of several names are not modelled", from);
    return real_linkat(from_dir, from, to_dir, to, flags);
}

EXPORT int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

EXPORT int truncate(const char *path, off_t size)
{
    find_all();
    if (file_named(AT_FDCWD, path) != NULL)
        give_up("truncate by name is not modelled", path);
    return real_truncate(path, size);
}

EXPORT int truncate64(const char *path, off64_t size)
{
    return truncate(path, size);
}
