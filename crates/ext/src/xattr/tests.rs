//! Attributes go with their inode, however many there are.

use crate::testing::Image;

/// More values in inodes of their own than go in one transaction.
#[test]
fn many_values_in_inodes_go_with_their_file() {
    let args = &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "ea_inode"];
    let Some(image) = Image::make("24M", args) else {
        return;
    };
    let before = image.free_counts();
    let value = image.path().with_extension("value");
    let mut requests = vec![format!("write {} f", value.display())];
    for number in 0..2 * super::VALUES_PER_STEP + 3 {
        requests.push(format!("ea_set -f {} f user.{number}", value.display()));
    }
    std::fs::write(&value, [b'v'; 1000]).expect("a value");
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    image.debugfs_write_all(&requests);
    let stat = image.debugfs("ea_list f");
    if !stat.contains("user.34") || image.free_counts()[0].1 + 30 > before[0].1 {
        eprintln!("skipped: this debugfs puts no values into inodes: {stat}");
        return;
    }
    let fs = image.open();
    let root = fs.root().expect("the root");
    let file = fs.lookup(&root, b"f").expect("the file");
    assert_eq!(fs.get_xattr(&file, b"user.7").expect("a value").len(), 1000);
    drop(file);
    fs.unlink(&root, b"f").expect("it goes");
    drop(root);
    fs.close().expect("close");
    image.check("values");
    assert_eq!(image.free_counts(), before);
}
