//! Files and file systems recognized by a magic number, and the next step for each.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Found;

/// A file format, recognized by bytes at an offset.
struct Known {
    at: u64,
    magic: &'static [u8],
    what: &'static str,
    next: &'static str,
}

macro_rules! table {
    ($($at:expr, $magic:literal, $what:literal, $next:expr;)*) => {
        &[$(Known { at: $at, magic: $magic, what: $what, next: $next }),*]
    };
}

const QEMU: &str = "make a raw image of it: qemu-img convert -O raw IMAGE RAW; \
    or show it as a block device: qemu-nbd -c /dev/nbd0 IMAGE";
const ARCHIVE: &str = "unpack it, and copy the contents into an image: throughline mkfs NEW.img SIZE, \
    throughline cp -a DIR/. NEW.img:/";
const OTHER_FS: &str = "throughline supports only ext2, ext3 and ext4: mount it with the kernel \
    (mount -o loop,ro IMAGE DIR)";
const FAT: &str = "throughline supports only ext2, ext3 and ext4: use mtools, or mount it with the kernel \
    (mount -o loop,ro IMAGE DIR)";

/// The first match wins: containers come before their possible contents, file systems before those recognized
/// by boot sectors alone. Offsets and magics are those of the formats' specifications.
const KNOWN: &[Known] = table! {
    // Disk images.
    0, b"QFI\xfb", "a qcow disk image (QEMU)", QEMU;
    0, b"QED\0", "a QED disk image (QEMU)", QEMU;
    0, b"KDMV", "a VMDK disk image (VMware)", QEMU;
    0, b"COWD", "a VMDK disk image (VMware)", QEMU;
    0, b"# Disk DescriptorFile", "the description of a VMDK disk image (VMware)",
        "its data is in the files that it names; make a raw image of them: qemu-img convert -O raw IMAGE RAW";
    0x40, b"\x7f\x10\xda\xbe", "a VDI disk image (VirtualBox)", QEMU;
    0, b"vhdxfile", "a VHDX disk image (Hyper-V)", QEMU;
    0, b"conectix", "a VHD disk image (Virtual PC, Azure)", QEMU;
    0, b"WithoutFreeSpace", "a Parallels disk image", QEMU;
    0, b"WithouFreSpacExt", "a Parallels disk image", QEMU;
    0, b"\x3a\xff\x26\xed", "an Android sparse image", "make a raw image of it: simg2img IMAGE RAW";
    0, b"EVF\x09\x0d\x0a\xff\0", "an EnCase (EWF) image", "show it as a raw image: ewfmount IMAGE DIR";
    32, b"SIF_MAGIC\0", "an Apptainer or Singularity container (SIF)",
        "'apptainer sif list IMAGE' shows where an ext3 overlay begins in it: give that with --offset";
    // Compressed files.
    0, b"\xfd7zXZ\0", "compressed with xz", "decompress it first: xz -dk IMAGE";
    0, b"\x28\xb5\x2f\xfd", "compressed with zstd", "decompress it first: zstd -d IMAGE";
    0, b"\x1f\x8b", "compressed with gzip", "decompress it first: gzip -dk IMAGE";
    0, b"BZh", "compressed with bzip2", "decompress it first: bzip2 -dk IMAGE";
    0, b"\x04\x22\x4d\x18", "compressed with lz4", "decompress it first: lz4 -d IMAGE";
    0, b"LZIP", "compressed with lzip", "decompress it first: lzip -dk IMAGE";
    0, b"\x89LZO\0\r\n\x1a\n", "compressed with lzop", "decompress it first: lzop -d IMAGE";
    0, b"\x1f\x9d", "compressed with compress", "decompress it first: gzip -dk IMAGE";
    // Archives.
    0, b"PK\x03\x04", "a zip archive", ARCHIVE;
    0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", ARCHIVE;
    0, b"070701", "a cpio archive", ARCHIVE;
    257, b"ustar", "a tar archive", ARCHIVE;
    // Encrypted or composed volumes.
    0, b"LUKS\xba\xbe", "encrypted with LUKS",
        "open it with the kernel: cryptsetup open IMAGE NAME, then use /dev/mapper/NAME";
    3, b"-FVE-FS-", "encrypted with BitLocker",
        "open it with the kernel: cryptsetup open --type bitlk IMAGE NAME, then use /dev/mapper/NAME";
    512, b"LABELONE", "an LVM physical volume",
        "activate it: vgchange -ay, then use /dev/VG/LV \
         (a file needs a loop device first: losetup -f --show IMAGE)";
    0, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)",
        "assemble it: mdadm --assemble --readonly /dev/md0 DEVICES, then use /dev/md0";
    4096, b"\xfc\x4e\x2b\xa9", "a member of a RAID (md)",
        "assemble it: mdadm --assemble --readonly /dev/md0 DEVICES, then use /dev/md0";
    4086, b"SWAPSPACE2", "swap space", "it holds no files";
    4086, b"SWAP-SPACE", "swap space", "it holds no files";
    // File systems.
    0, b"XFSB", "an XFS file system", OTHER_FS;
    0x1_0040, b"_BHRfS_M", "a Btrfs file system", OTHER_FS;
    0, b"hsqs", "a SquashFS file system", "unpack it: unsquashfs IMAGE; or mount it: squashfuse IMAGE DIR";
    0, b"sqsh", "a SquashFS file system (big-endian)", "unpack it: unsquashfs IMAGE";
    1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system",
        "unpack it: fsck.erofs --extract=DIR IMAGE; or mount it: erofsfuse IMAGE DIR";
    1024, b"\x10\x20\xf5\xf2", "an F2FS file system", OTHER_FS;
    4096 + 24, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "a bcachefs file system",
        OTHER_FS;
    32768 + 1, b"CD001", "an ISO 9660 image (CD, DVD)",
        "unpack it: xorriso -osirrox on -indev IMAGE -extract / DIR; \
         or mount it with the kernel (mount -o loop,ro IMAGE DIR)";
    32768 + 1, b"BEA01", "a UDF file system (DVD)", OTHER_FS;
    32768, b"JFS1", "a JFS file system", OTHER_FS;
    65536 + 52, b"ReIsEr", "a ReiserFS file system", OTHER_FS;
    1024, b"H+\0\x04", "an HFS+ file system", OTHER_FS;
    1024, b"HX\0\x05", "an HFSX file system", OTHER_FS;
    32, b"NXSB", "an APFS container", "mount it with apfs-fuse";
    0, b"\x45\x3d\xcd\x28", "a cramfs file system", OTHER_FS;
    0, b"-rom1fs-", "a romfs file system", OTHER_FS;
    0, b"UBI#", "a UBI image (raw flash)", "it needs an MTD device: ubiattach, then mount -t ubifs";
    0, b"\x31\x18\x10\x06", "a UBIFS image (raw flash)",
        "it needs an MTD device: ubiupdatevol, then mount -t ubifs";
    3, b"NTFS    ", "an NTFS file system", OTHER_FS;
    3, b"EXFAT   ", "an exFAT file system", OTHER_FS;
    82, b"FAT32   ", "a FAT file system", FAT;
    54, b"FAT16   ", "a FAT file system", FAT;
    54, b"FAT12   ", "a FAT file system", FAT;
    // Files that are not images.
    0, b"\x7fELF", "a program (ELF)", "name an image file or a block device";
    0, b"%PDF-", "a PDF document", "name an image file or a block device";
};

/// Length of the longest magic.
const LONGEST_BYTES: usize = 32;

/// The known format at byte `start` of a file, by its magic.
pub(super) fn find(file: &File, start: u64) -> Option<Found> {
    let has = |known: &&Known| {
        let mut bytes = [0; LONGEST_BYTES];
        let bytes = &mut bytes[..known.magic.len()];
        let at = start.checked_add(known.at);
        at.is_some_and(|at| file.read_exact_at(bytes, at).is_ok()) && bytes == known.magic
    };
    let known = KNOWN.iter().find(has)?;
    Some(Found {
        what: known.what.to_owned(),
        next: known.next.to_owned(),
    })
}

/// A file that begins with zeros: never formatted, or erased.
pub(super) fn empty(file: &File, start: u64) -> Option<Found> {
    is_zeros(file, start).then(|| Found {
        what: "empty: it begins with 1 MiB of zeros".to_owned(),
        next: "if nothing is on it yet, make a file system: throughline mkfs IMAGE; if it is a disk, give the \
            start of its volume with --offset".to_owned(),
    })
}

/// Whether the first MiB exists and is all zeros.
fn is_zeros(file: &File, start: u64) -> bool {
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, start).is_ok() && bytes.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_magic_is_found_at_its_place() {
        for one in KNOWN {
            assert!(one.magic.len() <= LONGEST_BYTES, "{}", one.what);
            for start in [0usize, 4096] {
                let file = tempfile::NamedTempFile::new().unwrap();
                let at = start + one.at as usize;
                let mut bytes = vec![0x11; at + one.magic.len()];
                bytes[at..].copy_from_slice(one.magic);
                std::fs::write(file.path(), &bytes).unwrap();
                let found = find(file.as_file(), start as u64).unwrap();
                assert_eq!(found.what, one.what);
                // Truncated, it is not recognized.
                std::fs::write(file.path(), &bytes[..bytes.len() - 1]).unwrap();
                assert_eq!(find(file.as_file(), start as u64), None, "{}", one.what);
            }
        }
    }
}
