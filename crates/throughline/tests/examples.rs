//! The examples, run: each is a module here, with its `main` beside what it does.

use std::path::{Path, PathBuf};
use std::process::Command;

use throughline::{OpenOptions, Volume};

#[path = "../examples/encrypted_device.rs"]
mod encrypted_device;
#[path = "../examples/memory_device.rs"]
mod memory_device;

fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// An image in a folder; `None` where nobody can make one.
fn image(size: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut make = tool("mke2fs");
    match make
        .args(["-q", "-F", "-t", "ext4"])
        .arg(&path)
        .arg(size)
        .status()
    {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            eprintln!("skipped: mke2fs cannot be run: {error}");
            return None;
        }
    }
    Some((folder, path))
}

fn judge(image: &Path) {
    let checked = tool("e2fsck").arg("-fn").arg(image).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
}

#[test]
fn an_image_in_memory_is_saved() {
    let Some((folder, path)) = image("8M") else {
        return;
    };
    let (before, saved) = (std::fs::read(&path).unwrap(), folder.path().join("saved"));
    let names = memory_device::run(&path, &saved).unwrap();
    assert!(names.contains(&"hello".to_owned()));
    judge(&saved);
    let volume = Volume::open(&saved).unwrap();
    assert_eq!(volume.read_to_string("/hello").unwrap(), "from memory\n");
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn an_encrypted_volume_is_read_with_its_key_alone() {
    let Some((folder, path)) = image("8M") else {
        return;
    };
    let sealed = folder.path().join("sealed");
    let secret = encrypted_device::run(&path, &sealed, &[7; 64].map(|byte| byte + 1)).unwrap();
    assert_eq!(secret, "attack at dawn");
    let bytes = std::fs::read(&sealed).unwrap();
    assert!(
        !bytes
            .windows(secret.len())
            .any(|at| at == secret.as_bytes())
    );
    assert!(
        OpenOptions::new().open(&sealed).is_err(),
        "no volume without the key"
    );
}
