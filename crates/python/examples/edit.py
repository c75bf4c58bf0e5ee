"""Makes an image, and edits it as files of the host are edited."""

import sys

import throughline


def main(image: str) -> None:
    """Makes and edits `image`."""
    throughline.mkfs(image, 64 << 20, label="example")
    with throughline.Volume(image, "r+") as volume:
        etc = volume.path("/etc")
        etc.mkdir()
        (etc / "hostname").write_text("one\n")

        # A file that is replaced is whole, old or new, after any crash.
        (etc / "hostname.new").write_text("two\n")
        (etc / "hostname.new").replace(etc / "hostname")

        with volume.open("/log", "a") as log:
            print("it works", file=log)
            volume.fsync(log)  # It survives a crash from here on.

        for at, _, names in volume.walk("/"):
            for name in names:
                path = volume.path(at, name)
                print(path, path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
