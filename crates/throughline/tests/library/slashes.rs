//! Paths that end in a slash: calls that change names do with them what the host's file system does.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use throughline::{Attributes, Memory, MkfsOptions, NewNode, OpenOptions, Volume};

type Done = Result<(), i32>;

/// A call on the host, below a directory, and the same on a volume.
struct Call {
    what: &'static str,
    host: fn(&Path) -> io::Result<()>,
    ours: fn(&Volume) -> throughline::Result<()>,
}

macro_rules! call {
    ($host:expr, $ours:expr) => {
        Call {
            what: stringify!($ours),
            host: $host,
            ours: $ours,
        }
    };
}

fn calls() -> Vec<Call> {
    vec![
        call!(|at| fs::remove_dir(at.join("to-dir/")), |volume| volume
            .remove_dir("to-dir/")),
        call!(|at| fs::remove_file(at.join("to-dir/")), |volume| volume
            .remove_file("to-dir/")),
        call!(|at| fs::remove_file(at.join("to-file/")), |volume| volume
            .remove_file("to-file/")),
        call!(|at| fs::remove_file(at.join("file/")), |volume| volume
            .remove_file("file/")),
        call!(|at| fs::remove_dir(at.join("file/")), |volume| volume
            .remove_dir("file/")),
        call!(
            |at| fs::rename(at.join("to-dir/"), at.join("new")),
            |volume| volume.rename("to-dir/", "new")
        ),
        call!(
            |at| fs::rename(at.join("dir"), at.join("to-dir/")),
            |volume| volume.rename("dir", "to-dir/")
        ),
        call!(
            |at| fs::rename(at.join("file"), at.join("new/")),
            |volume| volume.rename("file", "new/")
        ),
        call!(
            |at| fs::rename(at.join("dir"), at.join("file/")),
            |volume| volume.rename("dir", "file/")
        ),
        call!(|at| fs::create_dir(at.join("dangling/")), |volume| volume
            .create_dir("dangling/")
            .map(drop)),
        call!(|at| fs::create_dir(at.join("to-dir/")), |volume| volume
            .create_dir("to-dir/")
            .map(drop)),
        call!(|at| fs::create_dir(at.join("file/")), |volume| volume
            .create_dir("file/")
            .map(drop)),
        call!(|at| symlink("x", at.join("new/")), |volume| volume
            .symlink("x", "new/")),
        call!(|at| symlink("x", at.join("to-dir/")), |volume| volume
            .symlink("x", "to-dir/")),
        call!(
            |at| fs::hard_link(at.join("file"), at.join("new/")),
            |volume| volume.hard_link("file", "new/")
        ),
        call!(
            |at| {
                let mode = Mode::from_raw_mode(0o600);
                Ok(mknodat(CWD, at.join("new/"), FileType::Fifo, mode, 0)?)
            },
            |volume| volume
                .make_node("new/", NewNode::Fifo, &Attributes::new())
                .map(drop)
        ),
        // What goes through.
        call!(
            |at| fs::symlink_metadata(at.join("to-dir/")).map(drop),
            |volume| volume.symlink_metadata("to-dir/").map(drop)
        ),
        call!(
            |at| fs::rename(at.join("dir/"), at.join("new/")),
            |volume| volume.rename("dir/", "new/")
        ),
        call!(|at| fs::create_dir(at.join("dir/")), |volume| volume
            .create_dir("dir/")
            .map(drop)),
        call!(|at| fs::remove_dir(at.join("dir/")), |volume| volume
            .remove_dir("dir/")),
        call!(|at| fs::remove_dir(at.join("new/sub/")), |volume| volume
            .remove_dir("new/sub/")),
        call!(|at| fs::remove_dir(at.join("new/")), |volume| volume
            .remove_dir("new/")),
    ]
}

#[test]
fn a_slash_at_the_end_means_what_it_means_on_the_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path();
    let memory = Memory::zeroed(8 << 20);
    Volume::make_on(memory.clone(), &MkfsOptions::new()).expect("a volume");
    let volume = OpenOptions::new().write(true).open_device(memory);
    let volume = volume.expect("a sound volume");
    fs::write(host.join("file"), "").expect("a file");
    volume.write("file", "").expect("a file");
    fs::create_dir_all(host.join("dir/sub")).expect("directories");
    volume.create_dir_all("dir/sub").expect("directories");
    for (name, target) in [("to-dir", "dir"), ("to-file", "file"), ("dangling", "none")] {
        symlink(target, host.join(name)).expect("a link");
        volume.symlink(target, name).expect("a link");
    }
    for call in calls() {
        let theirs: Done = (call.host)(host).map_err(|error| error.raw_os_error().unwrap_or(0));
        let ours: Done =
            (call.ours)(&volume).map_err(|error| error.raw_os_error().unwrap_or_default());
        assert_eq!(ours, theirs, "{}", call.what);
    }
    let names = |found: Vec<String>| {
        let mut found: Vec<_> = found
            .into_iter()
            .filter(|name| name != "lost+found")
            .collect();
        found.sort_unstable();
        found
    };
    let theirs = fs::read_dir(host).expect("it is there");
    let theirs = theirs.map(|entry| entry.expect("a name").file_name().into_string());
    let ours = volume.read_dir("/").expect("it is there");
    let ours = ours.map(|entry| entry.expect("a name").file_name().into_string());
    assert_eq!(
        names(ours.map(Result::unwrap).collect()),
        names(theirs.map(Result::unwrap).collect())
    );
}

/// Of a link to a directory, the directory stays.
#[test]
fn a_tree_is_not_removed_through_a_link() {
    let memory = Memory::zeroed(8 << 20);
    Volume::make_on(memory.clone(), &MkfsOptions::new()).expect("a volume");
    let volume = OpenOptions::new().write(true).open_device(memory);
    let volume = volume.expect("a sound volume");
    volume.create_dir_all("dir/sub").expect("directories");
    volume.symlink("dir", "link").expect("a link");
    for path in ["link/", "link"] {
        let refused = volume.remove_dir_all(path).expect_err("it is a link");
        assert_eq!(refused.raw_os_error(), Some(20), "{path}: {refused}");
    }
    assert!(volume.exists("dir/sub").expect("an answer"));
}
