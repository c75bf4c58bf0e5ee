//! A `cp` that is interrupted or killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::Instant;

use throughline_testkit::e2fs::e2fsck;

use crate::common::{Image, noise, ok, run, str, throughline, tools_are_missing};

/// Starts a copy of many files.
fn begin_long_copy(image: &Image) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let tree = image.sibling("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..8000 {
        let name = format!("a-rather-long-name-{number}");
        fs::write(tree.join(name), noise(3000, number)).unwrap();
    }
    let mut child = throughline()
        .args(["cp", "-rv", str(&tree), &image.at("/")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Output arrives when its buffer is full, so the copy is in progress.
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    (child, stdout)
}

#[test]
fn an_interrupted_copy_closes_its_image() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4", "-N", "20000"]);
    let (child, mut stdout) = begin_long_copy(&image);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"));
    image.assert_clean();
    let copied = ok(["ls", &image.at("/tree")]).lines().count();
    assert!((1..8000).contains(&copied), "{copied}");
    ok(["rm", "-r", &image.at("/tree")]);
    image.assert_clean();
}

#[test]
fn a_killed_copy_leaves_an_image_that_recovers() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4", "-N", "20000"]);
    let (mut child, _stdout) = begin_long_copy(&image);
    child.kill().unwrap();
    child.wait().unwrap();
    let copy = image.sibling("copy");
    std::fs::copy(image.path(), &copy).unwrap();
    let ran = e2fsck(&copy, &["-fy"]);
    assert!((0..2).contains(&ran.code()), "{ran:?}");
    crate::common::assert_clean(&copy);
    // Without e2fsck, the next writer recovers the image.
    let ran = run(["mkdir", &image.at("/x")]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("was not closed cleanly"),
        "{}",
        ran.stderr
    );
    image.assert_clean();
}

/// The writer of the pipe keeps it open, but sends nothing more.
#[test]
fn a_copy_that_waits_for_a_pipe_can_be_interrupted() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let data = noise(9 << 20, 3);
    let mut child = throughline()
        .args(["cp", "-q", "-", &image.at("/piped")])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // More than a pipe holds: when this returns, most of it was read, so the image is open.
    pipe.write_all(&data).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    drop(pipe);
    image.assert_clean();
    let copied = image.contents("/piped");
    assert!(data.starts_with(&copied) && copied.len() < data.len());
}

/// A file replaced by `cp -f`, or by `mv` of a copy over it, has either the old or the new contents, whenever
/// the command is killed.
#[test]
fn a_file_that_is_replaced_is_whole_when_the_command_is_killed() {
    if tools_are_missing() {
        return;
    }
    let kills = throughline_testkit::tier::pick(8, 24, 24);
    for arguments in [&["-t", "ext4"][..], &["-t", "ext2"]] {
        let image = Image::new("32M", arguments);
        let contents = [(900_000, 1), (700_000, 2)].map(|(len, seed)| noise(len, seed));
        let from = image.sibling("from");
        let host = format!("host:{}", str(&from));
        let (copy, rename) = (format!("cp -f {host} /t"), "mv -f /t /a");
        let disk = image.path();
        let to = image.at("/a");
        let ways: [&[&str]; 2] = [
            &["cp", "-f", str(&from), &to],
            &["shell", str(&disk), "-c", &copy, "-c", rename],
        ];
        let mut in_time = 0;
        for kill in 0..kills {
            let way = ways[kill as usize % 2];
            fs::write(&from, &contents[0]).unwrap();
            let began = Instant::now();
            assert_eq!(run(way).code, Some(0), "{way:?}");
            let takes = began.elapsed();
            fs::write(&from, &contents[1]).unwrap();
            let mut child = throughline().args(way).spawn().unwrap();
            // Kill it at a fraction of the time that it took before.
            std::thread::sleep(takes * kill / kills);
            in_time += u32::from(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
            let repaired = e2fsck(&image.path(), &["-fy"]);
            assert!((0..2).contains(&repaired.code()), "{repaired:?}");
            let found = image.contents("/a");
            let len = found.len();
            assert!(contents.contains(&found), "{way:?}, kill {kill}: {len}");
        }
        assert!(in_time > 0, "none was killed");
    }
}

/// The shell may change its image, so the first Ctrl-C closes it in place of ending the process.
#[test]
fn zeroes_of_a_hole_on_their_way_to_a_pipe_can_be_interrupted() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["truncate", "-s", "8G", &image.at("/hole")]);
    let mut child = throughline()
        .args(["shell", image.str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut script = child.stdin.take().unwrap();
    script.write_all(b"touch /changed\ncat /hole\n").unwrap();
    drop(script);
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [1];
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    assert_eq!(first, [0]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let rest = std::io::copy(&mut stdout, &mut std::io::sink()).unwrap();
    assert!(rest < (8 << 30) - 1, "all {rest} bytes were written");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    image.assert_clean();
}
