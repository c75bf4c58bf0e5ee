//! Inodes as JSON and in colour.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use throughline::{FileType, Metadata};
use throughline_forms::time::rfc3339;

/// Adds a name to a JSON object: as text and, if it is not UTF-8, also its bytes in hexadecimal.
pub(crate) fn name_into(object: &mut Value, key: &str, name: &OsStr) {
    object[key] = json!(name.to_string_lossy());
    if name.to_str().is_none() {
        let digits = name.as_bytes().iter().map(|byte| format!("{byte:02x}"));
        object[format!("{key}_hex")] = json!(digits.collect::<String>());
    }
}

/// A JSON object with a name.
pub(crate) fn named(name: &OsStr) -> Value {
    let mut object = json!({});
    name_into(&mut object, "name", name);
    object
}

/// What `stat`, `ls` and `tree` print of an inode as JSON; `target` is that of a symbolic link.
pub(crate) fn inode(name: &OsStr, target: Option<&OsStr>, meta: &Metadata) -> Value {
    let kind = match meta.file_type() {
        FileType::File => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharDevice => "char_device",
        FileType::BlockDevice => "block_device",
    };
    let mut object = json!({
        "type": kind,
        "ino": meta.ino(),
        "mode": format!("{:04o}", meta.mode()),
        "uid": meta.uid(),
        "gid": meta.gid(),
        "links": meta.nlink(),
        "size_bytes": meta.len(),
        "allocated_bytes": meta.blocks_512().saturating_mul(512),
        "accessed": rfc3339(meta.accessed()),
        "modified": rfc3339(meta.modified()),
        "changed": rfc3339(meta.changed()),
        "created": meta.created().and_then(rfc3339),
    });
    name_into(&mut object, "name", name);
    if let Some(target) = target {
        name_into(&mut object, "target", target);
    }
    if let Some(device) = meta.device() {
        object["device"] = json!({ "major": device.major, "minor": device.minor });
    }
    object
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
