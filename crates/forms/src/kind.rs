//! File types as letters and words.

use throughline::{FileType, Metadata};

/// The letter that `ls -l` prints before `rwxr-xr-x`.
pub fn letter(kind: FileType) -> char {
    match kind {
        FileType::File => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
    }
}

/// The type as `stat` prints it.
pub fn words(meta: &Metadata) -> &'static str {
    match meta.file_type() {
        FileType::File if meta.len() == 0 => "regular empty file",
        FileType::File => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "character special file",
        FileType::BlockDevice => "block special file",
    }
}
