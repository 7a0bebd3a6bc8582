/*
 * Does to files what its argument says, to show what the file layer keeps: steps apart by ';',
 * words by a blank.
 *
 *   open NAME            opens or creates it; later steps use that descriptor
 *   write TEXT           at the descriptor's position
 *   append NAME TEXT     through a descriptor of its own that appends
 *   at OFFSET TEXT       at that offset
 *   parts OFFSET A B     both with one call
 *   fill OFFSET SIZE C   so many bytes of one character
 *   size SIZE            cuts or extends
 *   empty NAME           opens it with O_TRUNC
 *   sync, data           fsync, fdatasync
 *   names                fsync of the directory
 *   rename OLD NEW, unlink NAME
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int file = -1;

static int is(const char *word, const char *other)
{
    return strcmp(word, other) == 0;
}

static int use(int fd)
{
    if (file >= 0)
        close(file);
    file = fd;
    return fd < 0;
}

static int append(const char *name, const char *text)
{
    int fd = open(name, O_WRONLY | O_APPEND);
    int failed = write(fd, text, strlen(text)) < 0;
    close(fd);
    return failed;
}

static int parts(off_t at, char *a, char *b)
{
    struct iovec both[] = {{a, strlen(a)}, {b, strlen(b)}};
    return pwritev(file, both, 2, at) < 0;
}

static int fill(off_t at, size_t size, int character)
{
    char *bytes = malloc(size);
    memset(bytes, character, size);
    int failed = pwrite(file, bytes, size, at) < 0;
    free(bytes);
    return failed;
}

static int names(void)
{
    int fd = open(".", O_RDONLY);
    int failed = fsync(fd);
    close(fd);
    return failed;
}

static int run(char **words)
{
    const char *verb = words[0];
    if (is(verb, "open"))
        return use(open(words[1], O_RDWR | O_CREAT, 0600));
    if (is(verb, "empty"))
        return use(open(words[1], O_RDWR | O_TRUNC));
    if (is(verb, "write"))
        return write(file, words[1], strlen(words[1])) < 0;
    if (is(verb, "append"))
        return append(words[1], words[2]);
    if (is(verb, "at"))
        return pwrite(file, words[2], strlen(words[2]), atol(words[1])) < 0;
    if (is(verb, "parts"))
        return parts(atol(words[1]), words[2], words[3]);
    if (is(verb, "fill"))
        return fill(atol(words[1]), (size_t)atol(words[2]), words[3][0]);
    if (is(verb, "size"))
        return ftruncate(file, atol(words[1]));
    if (is(verb, "sync"))
        return fsync(file);
    if (is(verb, "data"))
        return fdatasync(file);
    if (is(verb, "names"))
        return names();
    if (is(verb, "rename"))
        return rename(words[1], words[2]);
    if (is(verb, "unlink"))
        return unlink(words[1]);
    return 1;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    for (char *rest, *step = strtok_r(arguments[1], ";", &rest); step != NULL;
         step = strtok_r(NULL, ";", &rest)) {
        char *words[5] = {0}, *more;
        char copy[256];
        snprintf(copy, sizeof copy, "%s", step);
        char *word = strtok_r(step, " ", &more);
        for (int i = 0; i < 4 && word != NULL; word = strtok_r(NULL, " ", &more))
            words[i++] = word;
        if (words[0] == NULL || run(words) != 0) {
            fprintf(stderr, "this step failed: %s\n", copy);
            return 1;
        }
    }
    return 0;
}
