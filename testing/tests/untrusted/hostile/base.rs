//! The images to be damaged: small ones of every kind, filled by the tools.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use throughline_testkit::e2fs::tool;

/// How to make a base image.
pub(crate) struct Recipe {
    /// Name in messages.
    pub(crate) name: &'static str,
    /// Arguments of `mke2fs`.
    pub mke2fs: &'static str,
    /// Size in KiB.
    pub(crate) kib: u64,
    /// Commands of `debugfs` run at the end.
    pub(crate) debugfs: &'static str,
}

/// A transaction that was committed and not checkpointed, with a directory block and a revoked block.
const LOGGED: &str =
    "jo -c\njw -b 200,201,300 -r 400,401 /dev/null\njc\njo -c\njw -b 210 /dev/null\njc\n";

/// All kinds.
pub(crate) const RECIPES: &[Recipe] = &[
    recipe("ext2", "-t ext2 -b 1024 -I 128 -O ^dir_index", ""),
    recipe("ext2 hashed", "-t ext2 -b 1024", ""),
    recipe("ext3", "-t ext3 -b 1024 -J size=1", ""),
    recipe("ext4", "-t ext4 -b 1024 -J size=1", ""),
    recipe(
        "ext4 rich",
        "-t ext4 -b 1024 -O inline_data,ea_inode,orphan_file,large_dir,metadata_csum_seed,project -J size=1",
        "",
    ),
    recipe(
        "ext4 without journal",
        "-t ext4 -b 1024 -O inline_data,^has_journal,sparse_super2,^resize_inode -g 1024",
        "",
    ),
    recipe(
        "ext4 without checksums",
        "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^has_journal,ea_inode,inline_data",
        "",
    ),
    recipe(
        "ext4 bare",
        "-t ext4 -b 1024 -O ^metadata_csum,^uninit_bg,^has_journal,^64bit,meta_bg,^resize_inode -g 1024",
        "",
    ),
    recipe(
        "ext4 of clusters, with quotas",
        "-t ext4 -b 1024 -O bigalloc,inline_data,quota,project -C 4096 -J size=1 \
         -E quotatype=usrquota:grpquota:prjquota",
        "",
    ),
    recipe(
        "ext4 to be read only",
        "-t ext4 -b 1024 -O bigalloc,casefold,verity,project -C 4096 -J size=1",
        "feature FEATURE_R31",
    ),
    recipe("ext3 to recover", "-t ext3 -b 1024 -J size=1", LOGGED),
    recipe("ext4 to recover", "-t ext4 -b 1024 -J size=1", LOGGED),
];

const fn recipe(name: &'static str, mke2fs: &'static str, debugfs: &'static str) -> Recipe {
    Recipe {
        name,
        mke2fs,
        kib: 4096,
        debugfs,
    }
}

fn run(command: &mut Command, input: &str) -> bool {
    let child = command
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .env("MKE2FS_DETERMINISTIC", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    // For programs that do not read their input, the exit status decides.
    let _ = child
        .stdin
        .take()
        .map(|mut pipe| pipe.write_all(input.as_bytes()));
    child
        .wait()
        .is_ok_and(|status| status.code().is_some_and(|code| code <= 1))
}

/// Contents of every image: hashed and small directories, files of many extents, links, attributes, nodes.
fn plant(tree: &Path) {
    let dir = |name: &str| std::fs::create_dir_all(tree.join(name)).unwrap();
    dir("many");
    dir("few/sub/deep");
    dir("inline");
    for n in 0..220 {
        std::fs::write(tree.join(format!("many/entry-{n:03}-{n:050}")), b"").unwrap();
    }
    std::fs::write(tree.join("few/small"), b"small").unwrap();
    std::fs::write(tree.join("few/sub/deep/leaf"), [7; 3000]).unwrap();
    std::fs::write(tree.join("plain"), vec![1; 40_000]).unwrap();
    std::fs::write(tree.join("inline/few bytes"), [9; 100]).unwrap();
    std::os::unix::fs::symlink("few/small", tree.join("short")).unwrap();
    std::os::unix::fs::symlink("../".repeat(30), tree.join("long")).unwrap();
    // Many single blocks: a deep map of either kind.
    let mut pieces = std::fs::File::create(tree.join("pieces")).unwrap();
    for n in 0..400u64 {
        use std::io::{Seek, SeekFrom};
        pieces.seek(SeekFrom::Start(n * 3072)).unwrap();
        pieces.write_all(&[n as u8; 700]).unwrap();
    }
    let far = std::fs::File::create(tree.join("far")).unwrap();
    std::os::unix::fs::FileExt::write_at(&far, b"far away", 80 << 20).unwrap();
}

/// Makes an image. `None` if a tool is missing.
pub(crate) fn make(recipe: &Recipe) -> Option<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    plant(&tree);
    let made = run(
        tool("mke2fs")
            .args([
                "-q",
                "-F",
                "-N",
                "512",
                "-U",
                "00112233-4455-6677-8899-aabbccddeeff",
            ])
            .args(["-E", "hash_seed=00112233-4455-6677-8899-aabbccddeeff"])
            .args(recipe.mke2fs.split(' '))
            .arg("-d")
            .args([&tree, &image])
            .arg(format!("{}k", recipe.kib)),
        "",
    );
    if !made {
        return None;
    }
    let attributes = format!(
        "ea_set few/small user.one value\nea_set few/small user.two {}\nea_set few user.big {}\n\
         cd few\nmknod device c 200 4000\nmknod pipe p\nln small hard\nquit\n",
        "v".repeat(300),
        "w".repeat(600),
    );
    let debugfs = |input: &str| run(tool("debugfs").args(["-w", "-f", "-"]).arg(&image), input);
    let done = debugfs(&attributes)
        // It builds directory hash trees, which mke2fs does not, and repairs counts that debugfs left wrong.
        && run(tool("e2fsck").args(["-fyD"]).arg(&image), "")
        && (recipe.debugfs.is_empty() || debugfs(recipe.debugfs));
    done.then(|| std::fs::read(&image).unwrap())
}
