//! A failed crash state, saved on disk: `THROUGHLINE_CUT=folder` checks it again.

use std::fs::File;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use throughline_testing::Image;

use super::fsck::Fsck;
use super::history::History;
use super::judge::Case;
use super::recipes::Recipe;
use super::tree::Tree;

#[derive(Serialize, Deserialize)]
struct Kept {
    recipe: String,
    at: usize,
    history: History,
    kept: Tree,
}

/// Saves the state of `case` in a new folder, with the events that led to it, and prints how to check it
/// again.
pub fn keep(case: &Case<'_>, state: &Image, events: &str) -> String {
    let kept = Kept {
        recipe: case.recipe.name.into(),
        at: case.at,
        history: case.history.clone(),
        kept: case.kept.clone(),
    };
    let written = (|| -> std::io::Result<PathBuf> {
        let folder = tempfile::Builder::new()
            .prefix("throughline-cut-")
            .disable_cleanup(true)
            .tempdir()?;
        state.write_file(&File::create(folder.path().join("image"))?, None)?;
        let text = serde_json::to_vec(&kept)?;
        std::fs::write(folder.path().join("case.json"), text)?;
        std::fs::write(folder.path().join("events"), events)?;
        Ok(folder.keep())
    })();
    match written {
        Ok(folder) => format!("THROUGHLINE_CUT={} checks it again", folder.display()),
        Err(error) => format!("the image could not be saved: {error}"),
    }
}

/// Checks a saved state.
///
/// # Errors
/// What is wrong with it.
pub fn again(folder: &Path) -> Result<(), String> {
    let text = std::fs::read(folder.join("case.json")).map_err(|error| error.to_string())?;
    let kept: Kept = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let state = Image::read_file(&folder.join("image")).map_err(|error| error.to_string())?;
    let lanes = kept.history.lanes.iter();
    let trees: Vec<_> = lanes.map(|lane| lane.names.trees()).collect();
    let case = Case {
        recipe: Recipe::named(&kept.recipe),
        history: &kept.history,
        trees: &trees,
        kept: &kept.kept,
        at: kept.at,
        failed: true,
    };
    case.judge(&state, &mut Fsck::new()).map(drop)
}
