//! GNU tar, bsdtar and the compressors in both directions: we read what they write, and they read what we
//! write.

use crate::common;

use common::{TREE, has, listing, merged, shell};
use throughline_archive::{Access, Limits, Merge, Sources, Tree, write_tar};

fn written(tree: &Tree, sources: &Sources) -> Vec<u8> {
    let mut out = Vec::new();
    let written = write_tar(tree, sources, &mut out).expect("a tar is written");
    assert_eq!(written.bytes, out.len() as u64);
    out
}

#[test]
fn gnu_tar_in_every_format_is_read() {
    let dir = tempfile::tempdir().expect("a directory");
    shell(dir.path(), TREE);
    let (tree, sources) = merged(&[&dir.path().join("tree")]);
    let expected = listing(&tree, &sources);
    assert!(expected.len() > 14);
    for options in [
        "--format=posix",
        "--format=posix --sparse",
        "--format=posix --sparse --sparse-version=0.0",
        "--format=posix --sparse --sparse-version=0.1",
        "--format=posix --sparse --sparse-version=1.0",
        "--format=gnu",
        "--format=gnu --sparse",
    ] {
        shell(
            dir.path(),
            &format!("tar {options} --sort=name -cf a.tar -C tree ."),
        );
        let (tree, sources) = merged(&[&dir.path().join("a.tar")]);
        let mut found = listing(&tree, &sources);
        if options.contains("gnu") {
            // No fractions of seconds in this format.
            let cut = |text: &str| text.replace("nanoseconds: 789012345", "nanoseconds: 0");
            let strip =
                |map: &std::collections::BTreeMap<String, String>| -> Vec<(String, String)> {
                    map.iter()
                        .map(|(path, text)| (path.clone(), strip_fraction(&cut(text))))
                        .collect()
                };
            assert_eq!(strip(&found), strip(&expected), "{options}");
            continue;
        }
        // The same, whatever order the members came in.
        for (path, text) in &expected {
            assert_eq!(found.remove(path).as_ref(), Some(text), "{options}: {path}");
        }
        assert!(found.is_empty(), "{options}: {found:?}");
        if options.contains("sparse") {
            assert!(tree.data_bytes() < 1_100_000, "{options}: holes are kept");
        }
    }
}

fn strip_fraction(text: &str) -> String {
    let Some((before, after)) = text.split_once("nanoseconds: ") else {
        return text.to_owned();
    };
    let rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    format!("{before}nanoseconds: {rest}")
}

#[test]
fn compressed_archives_of_several_members_are_read_and_garbage_after_them_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    shell(dir.path(), TREE);
    shell(
        dir.path(),
        "tar --format=posix -cf a.tar -C tree .; split -n 3 a.tar part.",
    );
    let (tree, sources) = merged(&[&dir.path().join("a.tar")]);
    let expected = listing(&tree, &sources);
    for program in ["gzip", "xz", "zstd", "bzip2"] {
        if !has(program) {
            continue;
        }
        let script = format!(
            "for p in part.a?; do {program} -c $p; done > a.packed; (cat a.packed; echo garbage) > b.packed;
             head -c -30 a.packed > c.packed
             (head -c 20000 a.packed; printf xxxx; tail -c +20005 a.packed) > d.packed"
        );
        shell(dir.path(), &script);
        let (tree, sources) = merged(&[&dir.path().join("a.packed")]);
        assert_eq!(sources.get(tree_source(&tree)).access(), Access::Sequential);
        assert_eq!(listing(&tree, &sources), expected, "{program}");
        // From a stream.
        let mut merge = Merge::new(Limits::default());
        let file = std::fs::File::open(dir.path().join("a.packed")).expect("it is there");
        merge.add_stream(file, "stream").expect("a sound stream");
        let (tree, sources) = merge.finish();
        assert_eq!(listing(&tree, &sources), expected, "{program}");
        for (name, words) in [
            ("b.packed", "after the"),
            ("c.packed", "truncated"),
            ("d.packed", "damaged"),
        ] {
            let mut merge = Merge::new(Limits::default());
            let error = merge
                .add(&dir.path().join(name))
                .expect_err(name)
                .to_string();
            // What is damaged inside may also be found as a member that is wrong.
            let found = if name == "d.packed" {
                "damaged"
            } else {
                program
            };
            let clear =
                error.contains(words) || error.contains(found) || error.contains("checksum");
            assert!(clear, "{program} {name}: {error}");
        }
    }
}

fn tree_source(tree: &Tree) -> throughline_archive::SourceId {
    let with_data = tree.ids().filter_map(|id| tree.node(id).content());
    let found = with_data
        .filter(|content| content.extents().next().is_some())
        .map(|content| content.source);
    found.last().expect("a file with data")
}

#[test]
fn what_is_written_is_read_back_by_us_gnu_tar_and_bsdtar() {
    let dir = tempfile::tempdir().expect("a directory");
    shell(dir.path(), TREE);
    let (tree, sources) = merged(&[&dir.path().join("tree")]);
    let expected = listing(&tree, &sources);
    let bytes = written(&tree, &sources);
    std::fs::write(dir.path().join("w.tar"), &bytes).expect("it is written");
    let (again, again_sources) = merged(&[&dir.path().join("w.tar")]);
    assert!(tree.same_shape(&again));
    assert_eq!(listing(&again, &again_sources), expected);
    assert_eq!(written(&again, &again_sources), bytes, "a fixed point");
    for program in ["tar", "bsdtar"] {
        if !has(program) {
            continue;
        }
        shell(
            dir.path(),
            &format!("rm -rf out; mkdir out; {program} -xpf w.tar -C out"),
        );
        let (out, out_sources) = merged(&[&dir.path().join("out")]);
        assert_eq!(listing(&out, &out_sources), expected, "{program}");
        assert!(out.data_bytes() < 1_200_000, "{program}: holes are kept");
    }
}

#[test]
fn attributes_and_acls_survive_gnu_tar_and_bsdtar() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = "mkdir tree; echo x > tree/f; setfattr -n user.one -v two tree/f; mkdir tree/d
        setfacl -m u:1234:rw,g:77:r tree/f; setfacl -d -m u:55:rwx tree/d";
    if !has("setfattr") || !has("setfacl") {
        return;
    }
    shell(dir.path(), script);
    let (tree, sources) = merged(&[&dir.path().join("tree")]);
    let expected = listing(&tree, &sources);
    let acl = |tree: &Tree| {
        let file = tree.lookup(b"f").expect("it is there");
        tree.node(file)
            .xattrs()
            .filter(|(name, _)| *name == b"system.posix_acl_access")
            .count()
    };
    assert_eq!(acl(&tree), 1);
    let bytes = written(&tree, &sources);
    std::fs::write(dir.path().join("w.tar"), bytes).expect("it is written");
    for (program, options) in [("tar", "--acls --xattrs"), ("bsdtar", "--acls --xattrs")] {
        if !has(program) {
            continue;
        }
        shell(
            dir.path(),
            &format!("rm -rf out; mkdir out; {program} {options} -xpf w.tar -C out"),
        );
        let (out, out_sources) = merged(&[&dir.path().join("out")]);
        assert_eq!(listing(&out, &out_sources), expected, "{program} reads");
        let numeric = if program == "tar" {
            "--numeric-owner --format=posix"
        } else {
            "--format=pax"
        };
        shell(
            dir.path(),
            &format!("{program} {options} {numeric} -cf r.tar -C tree ."),
        );
        let (back, back_sources) = merged(&[&dir.path().join("r.tar")]);
        assert_eq!(listing(&back, &back_sources), expected, "{program} writes");
    }
}

#[test]
fn the_order_in_which_the_host_lists_a_directory_does_not_matter() {
    let dir = tempfile::tempdir().expect("a directory");
    shell(
        dir.path(),
        "mkdir a b; for n in $(seq 1 300); do echo $n > a/$n; touch -d @$n a/$n; done
         for n in $(seq 300 -1 1); do echo $n > b/$n; touch -d @$n b/$n; done; touch -d @5 a b",
    );
    let of = |name: &str| {
        let (tree, sources) = merged(&[&dir.path().join(name)]);
        written(&tree, &sources)
    };
    assert_eq!(of("a"), of("b"));
}
