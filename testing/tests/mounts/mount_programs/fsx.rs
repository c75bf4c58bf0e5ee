//! fsx: random reads, writes, maps, truncations and holes in one file, compared with memory.

use std::process::Command;

use crate::mount_programs::stage::{
    EXT2_1K, EXT3, EXT4, EXT4_1K, INLINE_DATA, NO_JOURNAL, Stage, amount, run,
};

#[test]
fn random_operations_on_one_file() {
    for (seed, recipe) in [EXT2_1K, EXT3, EXT4, EXT4_1K, INLINE_DATA, NO_JOURNAL]
        .into_iter()
        .enumerate()
    {
        let Some(stage) = Stage::new(recipe, "128m", &["fsx"]) else {
            return;
        };
        let mut command = Command::new("fsx");
        command
            .current_dir(stage.sibling(""))
            .args(["-N", &amount(1000, 100_000).to_string()])
            .args(["-S", &(seed + 1).to_string()])
            .arg(stage.path("/fsx"));
        run(&mut command);
        stage.finish();
    }
}
