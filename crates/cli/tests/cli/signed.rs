//! Overlays over objects by signed URLs: nothing of a signature or a password is in the file of an overlay,
//! and who opens it names the whole URL.

use std::fs::{self, File};

use crate::common::{Image, tools_are_missing};
use crate::objects::{copy_sparse, stored};

const SECRET: &str = "hidden-word";

/// No part of the secret is in a file.
fn assert_no_secret(path: &str, when: &str) {
    let bytes = fs::read(path).unwrap();
    for word in [SECRET, "sig=", "user:"] {
        let mut windows = bytes.windows(word.len());
        let found = windows.any(|window| window == word.as_bytes());
        assert!(!found, "{when}: {word}");
    }
}

#[test]
fn the_signature_of_a_base_is_not_kept() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let plain = stored.server.url();
    stored.server.require("sig=");
    let [overlay, new] = ["over.qcow2", "new"].map(|name| stored.image.sibling(name));
    let (overlay, new) = (overlay.to_str().unwrap(), new.to_str().unwrap());
    fs::write(new, "new\n").unwrap();
    let signed = format!("{plain}?sig={SECRET}");
    let renewed = format!("{plain}?sig={SECRET}-2&expires=9");
    let with_user = signed.replace("//", &format!("//user:{SECRET}@"));
    for url in [&signed, &with_user] {
        let at = |path: &str| format!("{url}:{path}");
        stored.good(&["cp", "--overlay", overlay, new, &at("/etc/new")]);
        assert_no_secret(overlay, "made");
        let ran = stored.good(&["cat", "--overlay", overlay, &at("/etc/new")]);
        assert_eq!(ran.text(), "new\n");
        fs::remove_file(overlay).unwrap();
    }
    let at = |path: &str| format!("{signed}:{path}");
    stored.good(&["cp", "--overlay", overlay, new, &at("/etc/new")]);
    // With a signature that was made later, as well.
    let later = format!("{renewed}:/etc/motd");
    stored.good(&["rm", "--overlay", overlay, &later]);
    assert_no_secret(overlay, "written again");

    let inside = format!("{overlay}:/etc/new");
    for allowed in [&signed, &renewed, &with_user] {
        let ran = stored.good(&["overlay", "diff", "--backing", allowed, overlay]);
        assert_eq!(ran.text(), "D /etc/motd\nA /etc/new\n");
        let ran = stored.good(&["cat", "--backing", allowed, &inside]);
        assert_eq!(ran.text(), "new\n");
    }
    stored.server.take_requests();
    for allowed in [vec![], vec!["--backing", &plain]] {
        for command in [vec!["overlay", "diff", overlay], vec!["cat", &inside]] {
            let said = stored.fails(&[&allowed[..], &command[..]].concat());
            assert!(said.contains("a query or a password"), "{said}");
            assert!(said.contains(&format!("--backing '{plain}?...'")), "{said}");
            assert!(!said.contains(SECRET), "{said}");
        }
    }
    assert_eq!(stored.server.asked_count(), 0, "nothing is asked for");

    // Another version of the base.
    let other = stored.image.sibling("other");
    copy_sparse(&stored.image.path(), &other).unwrap();
    let other = || File::open(&other).unwrap();
    let etag = Some("\"other\"");
    stored.server.replace(other(), etag, None);
    let said = stored.fails(&["cat", "--backing", &signed, &inside]);
    assert!(said.contains("replaced"), "{said}");
}

/// Laid over a base by a signed URL, an overlay does not keep it, either.
#[test]
fn the_signature_of_a_new_base_is_not_kept() {
    if tools_are_missing() {
        return;
    }
    let mut stored = stored();
    // The whole disk is compared.
    stored.image = Image::new("16M", &["-t", "ext4"]);
    stored.image.debugfs_write("mkdir etc");
    let file = File::open(stored.image.path()).unwrap();
    stored.server.replace(file, Some("\"5\""), None);
    let [overlay, new] = ["over.qcow2", "new"].map(|name| stored.image.sibling(name));
    let (overlay, new) = (overlay.to_str().unwrap(), new.to_str().unwrap());
    fs::write(new, "new\n").unwrap();
    let plain = stored.server.url();
    let at = format!("{plain}:/etc/new");
    stored.good(&["cp", "--overlay", overlay, new, &at]);
    // Nothing was left out of this one.
    stored.good(&["overlay", "diff", "--backing", &plain, overlay]);
    let signed = format!("{}?sig={SECRET}", stored.server.url_of("elsewhere"));
    let rebase = ["overlay", "rebase", "--backing", &plain, overlay, &signed];
    stored.good(&rebase);
    assert_no_secret(overlay, "rebased");
    let said = stored.fails(&["overlay", "diff", "--backing", &plain, overlay]);
    assert!(said.contains("a query or a password"), "{said}");
    let ran = stored.good(&["overlay", "diff", "--backing", &signed, overlay]);
    assert_eq!(ran.text(), "A /etc/new\n");
    // And back: nothing is left out any more.
    let rebase = ["overlay", "rebase", "--backing", &signed, overlay, &plain];
    stored.good(&rebase);
    stored.good(&["overlay", "diff", "--backing", &plain, overlay]);
}
