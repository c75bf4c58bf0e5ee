/* Packs the directory "tree" of the present directory. */
#include <stdio.h>
#include <throughline.h>

int main(int count, char **arguments) {
    tl_time epoch = {7, 0, 0};
    if (count == 2 && tl_pack("tree", arguments[1], 0, &epoch, NULL) == 0) return 0;
    fprintf(stderr, "%s\n", tl_message());
    return 1;
}
