//! Extended attributes and ACLs: the same random calls on the kernel's ext4 and on our engine give the same
//! results and the same trees. Then each side reads and changes what the other wrote.

mod act;
mod host;
mod ours;

use std::collections::BTreeMap;

use act::{Act, Outcome, Rng};
use throughline_testing::{DiskImage, Mount};

/// The visible state of a tree: mode and attributes by path.
pub(crate) type Seen = BTreeMap<String, (u32, BTreeMap<String, Vec<u8>>)>;

/// A file system that executes the calls.
pub(crate) trait Side {
    fn act(&mut self, act: &Act) -> Outcome;
    /// Mode and attributes of each existing path.
    fn see(&mut self, paths: &[String]) -> Seen;
}

const RECIPES: [(&str, &str); 6] = [
    ("ext2", "-t ext2 -b 1024 -I 128"),
    ("ext3", "-t ext3 -b 1024 -I 256"),
    ("ext4", "-t ext4 -b 4096"),
    ("ea_inode", "-t ext4 -b 4096 -I 256 -O ea_inode"),
    (
        "ea_inode, small blocks",
        "-t ext4 -b 1024 -I 256 -O ea_inode",
    ),
    (
        "inline_data",
        "-t ext4 -b 4096 -I 256 -O inline_data,ea_inode",
    ),
];

fn may_mount() -> bool {
    let may =
        throughline_testkit::tier::as_root() && std::path::Path::new("/dev/loop-control").exists();
    if !may {
        throughline_testkit::missing!("root and loop devices are required");
    }
    may
}

/// Runs `acts` on both images; the results must be equal, and so must the trees afterwards.
fn both(what: &str, kernel: &DiskImage, ours: &DiskImage, acts: &[Act], paths: &[String]) -> bool {
    let Some(mount) = Mount::or_skip(kernel.path(), true) else {
        return false;
    };
    let mut host = host::Host::new(mount.root());
    let wanted: Vec<Outcome> = acts.iter().map(|act| host.act(act)).collect();
    let seen = host.see(paths);
    mount.close();
    kernel.check(&format!("{what}: the kernel's image"));
    let mut side = ours::Ours::open(ours.path());
    let mut other = Vec::new();
    for (number, (act, wanted)) in acts.iter().zip(&wanted).enumerate() {
        let done = side.act(act);
        if done != *wanted {
            other.push(format!(
                "{number} {act:?}: ours {done:?}, the kernel's {wanted:?}"
            ));
        }
    }
    assert!(other.is_empty(), "{what}:\n{}", other.join("\n"));
    same(&side.see(paths), &seen, what);
    side.close();
    ours.check(&format!("{what}: ours"));
    true
}

fn same(found: &Seen, wanted: &Seen, what: &str) {
    for path in found.keys().chain(wanted.keys()) {
        assert_eq!(found.get(path), wanted.get(path), "{what}: {path}");
    }
}

#[test]
fn the_kernel_and_we_agree() {
    if !may_mount() {
        return;
    }
    let soak = throughline_testkit::tier::soak();
    let (rounds, steps) = if soak { (20, 600) } else { (1, 250) };
    for (recipe, arguments) in RECIPES {
        for round in 0..rounds {
            let Some(one) = DiskImage::make(arguments, "32m") else {
                break;
            };
            let mut rng = Rng::new(0xA77 + round);
            let other = one.copy();
            let what = format!("{recipe}, round {round}");
            // e2fsck 1.47 mistakes the blocks of an attribute value in an inode for those of a symbolic
            // link's target.
            let links = !arguments.contains("ea_inode");
            let (acts, paths) = act::random(&mut rng, steps, links);
            if !both(&what, &one, &other, &acts, &paths) {
                break;
            }
            // Each side continues on the image that the other wrote.
            let (acts, _) = act::random(&mut rng, steps, links);
            let crossed = format!("{what}, crossed over");
            both(&crossed, &other, &one, &acts, &paths);
            // Then each side reads the other's result.
            let mount = Mount::or_skip(one.path(), false).expect("as before");
            let by_kernel = host::Host::new(mount.root()).see(&paths);
            mount.close();
            let mut side = ours::Ours::open(other.path());
            same(&side.see(&paths), &by_kernel, &crossed);
            side.close();
        }
    }
}
