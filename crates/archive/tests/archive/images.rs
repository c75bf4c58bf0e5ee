//! Container images, as `umoci`, `skopeo` and a small builder of this test make them.

use crate::common;

use std::path::Path;

use common::{has, listing, merged, shell};
use throughline_archive::{Limits, Merge, Platform};

/// A layout with two layers in `oci`, made with coreutils.
const LAYOUT: &str = r#"
rm -rf oci l1 l2; mkdir -p oci/blobs/sha256 l1/d l1/gone l2/d
echo one > l1/d/one; echo two > l1/d/two; echo keep > l1/keep; echo x > l1/gone/x; ln l1/keep l1/same
: > l2/d/.wh.one; : > l2/.wh.gone; echo new > l2/d/two
put() { sum=$(sha256sum "$1" | cut -d' ' -f1); size=$(stat -c %s "$1"); cp "$1" oci/blobs/sha256/$sum; }
for l in l1 l2; do
  tar --sort=name --mtime=@5 --owner=0 --group=0 -cf $l.tar -C $l .
  eval "$l=sha256:$(sha256sum $l.tar | cut -d' ' -f1)"; PACK < $l.tar > $l.packed
done
put l1.packed; d1=$sum s1=$size; put l2.packed; d2=$sum s2=$size
echo "{\"os\":\"linux\",\"architecture\":\"amd64\",
\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"$l1\",\"$l2\"]}}" > config
put config; dc=$sum sc=$size
t=application/vnd.oci.image.layer.v1.tarENDING
echo "{\"schemaVersion\":2,\"config\":{\"digest\":\"sha256:$dc\",\"size\":$sc},\"layers\":[
 {\"mediaType\":\"$t\",\"digest\":\"sha256:$d1\",\"size\":$s1},
 {\"mediaType\":\"$t\",\"digest\":\"sha256:$d2\",\"size\":$s2}]}" > m
put m; dm=$sum sm=$size
echo "{\"schemaVersion\":2,\"manifests\":[
 {\"digest\":\"sha256:$(printf '0%.0s' {1..64})\",\"size\":5,
  \"platform\":{\"os\":\"linux\",\"architecture\":\"riscv64\"}},
 {\"digest\":\"sha256:$dm\",\"size\":$sm,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"},
  \"annotations\":{\"org.opencontainers.image.ref.name\":\"latest\"}}]}" > oci/index.json
echo '{"imageLayoutVersion":"1.0.0"}' > oci/oci-layout
tar -cf oci.tar -C oci .
rm -rf docker; mkdir docker; cp l1.tar docker/$d1.tar; cp l2.tar docker/$d2.tar; cp config docker/$dc.json
echo "[{\"Config\":\"$dc.json\",\"RepoTags\":[\"a:b\"],
 \"Layers\":[\"$d1.tar\",\"$d2.tar\"]}]" > docker/manifest.json
tar -cf docker.tar -C docker .; gzip -c docker.tar > docker.tar.gz
"#;

fn layout(dir: &Path, compressor: &str, ending: &str) {
    let script = LAYOUT.replace("PACK", compressor).replace("ENDING", ending);
    shell(dir, &script);
}

fn amd64() -> Platform {
    Platform {
        os: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        variant: None,
    }
}

fn image(path: &Path) -> Result<Vec<(String, String)>, throughline_archive::Error> {
    let mut merge = Merge::new(Limits::default());
    merge.set_platform(amd64());
    merge.add(path)?;
    let (tree, sources) = merge.finish();
    Ok(listing(&tree, &sources).into_iter().collect())
}

#[test]
fn layouts_and_archives_in_every_form_give_the_same_tree() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut expected = None;
    for (compressor, ending) in [("cat", ""), ("gzip", "+gzip"), ("zstd", "+zstd")] {
        if compressor != "cat" && !has(compressor) {
            continue;
        }
        layout(dir.path(), compressor, ending);
        for form in ["oci", "oci.tar", "docker.tar", "docker.tar.gz"] {
            let found =
                image(&dir.path().join(form)).unwrap_or_else(|error| panic!("{form}: {error}"));
            let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["d", "d/two", "keep", "same"], "{form}");
            assert_eq!(
                expected.get_or_insert_with(|| found.clone()),
                &found,
                "{compressor} {form}"
            );
        }
    }
}

#[test]
fn damaged_blobs_and_other_platforms_are_errors() {
    let dir = tempfile::tempdir().expect("a directory");
    // Without the time of the file, whose bytes are among those that this test changes.
    layout(dir.path(), "gzip -n", "+gzip");
    let mut merge = Merge::new(Limits::default());
    merge.set_platform(Platform {
        architecture: "s390x".to_owned(),
        ..amd64()
    });
    let error = merge
        .add(&dir.path().join("oci"))
        .expect_err("no such platform")
        .to_string();
    assert!(error.contains("linux/riscv64"), "{error}");
    let mut merge = Merge::new(Limits::default());
    merge.set_platform(amd64());
    merge
        .add_image(&dir.path().join("oci"), Some("latest"))
        .expect("it is there");
    merge
        .add_image(&dir.path().join("docker.tar"), Some("a:b"))
        .expect("it is there");
    assert!(
        merge
            .add_image(&dir.path().join("docker.tar"), Some("c"))
            .is_err()
    );
    assert!(merge.platform_counted());
    let mut merge = Merge::new(Limits::default());
    merge.set_platform(Platform {
        variant: Some("v3".to_owned()),
        ..amd64()
    });
    let error = merge
        .add_image(&dir.path().join("docker.tar"), Some("a:b"))
        .expect_err("its configuration names no variant")
        .to_string();
    assert!(
        error.contains("for linux/amd64, not for linux/amd64/v3"),
        "{error}"
    );

    shell(
        dir.path(),
        "f=oci/blobs/sha256/$(sha256sum l2.packed | cut -d' ' -f1)
         printf x | dd of=$f bs=1 seek=5 conv=notrunc status=none
         f=docker/$(sha256sum l1.packed | cut -d' ' -f1).tar
         printf x | dd of=$f bs=1 seek=1024 conv=notrunc status=none
         tar -cf docker.tar -C docker .",
    );
    for form in ["oci", "docker.tar"] {
        let error = image(&dir.path().join(form))
            .expect_err("damaged")
            .to_string();
        assert!(
            error.contains("damaged") || error.contains("checksum"),
            "{form}: {error}"
        );
    }
}

#[test]
fn an_image_of_umoci_and_skopeo_is_what_umoci_unpacks() {
    if !has("umoci") || !has("skopeo") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    shell(
        dir.path(),
        "umoci init --layout img; umoci new --image img:a
         umoci unpack --rootless --image img:a b 2>/dev/null
         mkdir -p b/rootfs/d/e b/rootfs/opaque; echo 1 > b/rootfs/d/e/f; echo 2 > b/rootfs/gone
         ln b/rootfs/gone b/rootfs/d/linked
         ln -s d/e b/rootfs/way; echo o > b/rootfs/opaque/old
         umoci repack --image img:a b 2>/dev/null; rm -rf b
         umoci unpack --rootless --image img:a b 2>/dev/null
         rm -r b/rootfs/gone b/rootfs/opaque; mkdir b/rootfs/opaque; echo n > b/rootfs/opaque/new
         echo 3 > b/rootfs/d/e/f
         umoci repack --image img:a b 2>/dev/null; rm -rf b
         umoci unpack --rootless --image img:a b 2>/dev/null
         skopeo --insecure-policy copy -q oci:img:a oci-archive:oci.tar:a
         skopeo --insecure-policy copy -q oci:img:a docker-archive:docker.tar:a:latest",
    );
    let (tree, sources) = merged(&[&dir.path().join("b/rootfs")]);
    let plain = |listing: std::collections::BTreeMap<String, String>| -> Vec<(String, String)> {
        // Unpacked without root, owners are the user's; attributes say what they were.
        let cut = |text: String| {
            text.split_whitespace()
                .filter(|word| !word.contains(':'))
                .collect::<Vec<_>>()
                .join(" ")
        };
        listing
            .into_iter()
            .map(|(name, text)| {
                (
                    name,
                    cut(text.split("[(").next().unwrap_or_default().to_owned()),
                )
            })
            .collect()
    };
    let expected = plain(listing(&tree, &sources));
    assert!(expected.iter().any(|(name, _)| name == "opaque/new"));
    for form in ["img", "oci.tar", "docker.tar"] {
        let mut merge = Merge::new(Limits::default());
        merge
            .add(&dir.path().join(form))
            .unwrap_or_else(|error| panic!("{form}: {error}"));
        let (tree, sources) = merge.finish();
        let found = plain(listing(&tree, &sources));
        let names = |list: &[(String, String)]| {
            list.iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&found), names(&expected), "{form}");
    }
}
