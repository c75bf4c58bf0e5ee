//! Inodes as JSON and in colour.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value, json};
use throughline::{FileType, Metadata};
use throughline_forms::time::rfc3339;

/// Adds a name to a JSON object: as text and, if it is not UTF-8, also its bytes in hexadecimal.
pub(crate) fn name_into(object: &mut Map<String, Value>, key: &str, name: &OsStr) {
    object.insert(key.to_owned(), json!(name.to_string_lossy()));
    if name.to_str().is_none() {
        let hex: String = name
            .as_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        object.insert(format!("{key}_hex"), json!(hex));
    }
}

/// Adds the fields of an inode that `stat` and `ls` print as JSON.
pub(crate) fn metadata_into(object: &mut Map<String, Value>, meta: &Metadata) {
    let kind = match meta.file_type() {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char_device",
        FileType::BlockDevice => "block_device",
    };
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("type", json!(kind));
    put("ino", json!(meta.ino()));
    put("mode", json!(format!("{:04o}", meta.mode())));
    put("uid", json!(meta.uid()));
    put("gid", json!(meta.gid()));
    put("links", json!(meta.nlink()));
    put("size_bytes", json!(meta.len()));
    put(
        "allocated_bytes",
        json!(meta.blocks_512().saturating_mul(512)),
    );
    if let Some(device) = meta.device() {
        put(
            "device",
            json!({ "major": device.major, "minor": device.minor }),
        );
    }
    put("accessed", json!(rfc3339(meta.accessed())));
    put("modified", json!(rfc3339(meta.modified())));
    put("changed", json!(rfc3339(meta.changed())));
    put("created", json!(meta.created().and_then(rfc3339)));
}

/// A name in the colour that `ls` uses for its kind: bold blue directories, cyan links, green programs,
/// yellow devices.
pub(crate) fn coloured(name: &[u8], meta: &Metadata) -> Vec<u8> {
    let code = match meta.file_type() {
        FileType::Directory => "1;34",
        FileType::Symlink => "1;36",
        FileType::Fifo | FileType::CharDevice | FileType::BlockDevice => "1;33",
        FileType::Socket => "1;35",
        FileType::File if meta.mode() & 0o111 != 0 => "1;32",
        FileType::File => return name.to_vec(),
    };
    [format!("\x1b[{code}m").as_bytes(), name, b"\x1b[0m"].concat()
}
