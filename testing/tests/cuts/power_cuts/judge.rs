//! What must hold after a crash, after either recovery.

use std::collections::BTreeSet;
use std::sync::Arc;

use throughline::OpenOptions;
use throughline_testing::{Image, PowerDevice};

use super::fsck::{Fsck, cannot_truncate, leads_to_value, left_values, repairs};
use super::history::{History, Lane};
use super::names::{Id, Kind, Names};
use super::oracle::external;
use super::recipes::Recipe;
use super::recorded;
use super::tree::{self, Entry, EntryKind, Tree};

/// Everything that one state is checked against.
pub struct Case<'a> {
    pub recipe: &'a Recipe,
    pub history: &'a History,
    /// The trees of each lane, by the number of operations.
    pub trees: &'a [Vec<Names>],
    /// The tree from before the workload, which must not change.
    pub kept: &'a Tree,
    /// Position in the device's record at which power failed.
    pub at: usize,
    /// The device had failed before that, which may be recorded.
    pub failed: bool,
}

impl Case<'_> {
    /// Checks a crash state after both recoveries. Returns the device with the record of ours, for power
    /// cuts in its middle.
    ///
    /// # Errors
    /// What is wrong.
    pub fn judge(
        &self,
        state: &Image,
        fsck: &mut Fsck,
    ) -> Result<Option<Arc<PowerDevice>>, String> {
        let (repaired, output) = fsck.repair(state)?;
        let is_no_judge = cannot_truncate(self.recipe, &output);
        if !is_no_judge {
            fsck.check(&repaired)
                .map_err(|what| format!("after e2fsck -fy, which said {output}: {what}"))?;
        }
        let mut left = None;
        let theirs = match tree::read(&repaired) {
            _ if is_no_judge => None,
            Err(what) if self.recipe.journaled && left_values(&output, &what) => None,
            // With the record of an error, it leaves them in the same way.
            Err(what) if self.failed && leads_to_value(&what) => {
                left = Some(what);
                None
            }
            read => Some(read.map_err(|what| format!("after e2fsck -fy: {what}"))?),
        };
        if let Some(theirs) = theirs.as_ref().filter(|_| !self.recipe.journaled) {
            return match self.plain(theirs) {
                Ok(()) => Ok(None),
                Err(what) => Err(format!("{what}; e2fsck -fy said {output}")),
            };
        }
        let device = match self.failed {
            true => recover_failed(state)?,
            false => recover(state)?,
        };
        let recovered = device.contents();
        let unrecorded = recorded::without_record(&recovered).filter(|_| self.failed);
        if let (Some(what), None) = (left, &unrecorded) {
            return Err(format!("after e2fsck -fy: {what}"));
        }
        if let Some(theirs) = &theirs {
            let more = repairs(&output);
            if !more.is_empty() && unrecorded.is_none() {
                return Err(format!("e2fsck -fy had to repair: {}", more.join("\n")));
            }
            self.promised(theirs)
                .map_err(|what| format!("after e2fsck -fy: {what}"))?;
        }
        let checked = match &unrecorded {
            Some(volume) => recorded::judge(self.recipe, volume, &output, fsck),
            None => fsck.check(&recovered),
        };
        let ours = checked.and_then(|()| tree::read(&recovered));
        let ours = ours.map_err(|what| format!("after our recovery: {what}"))?;
        let Some(theirs) = theirs else {
            self.promised(&ours)
                .map_err(|what| format!("after our recovery: {what}"))?;
            return Ok(Some(device));
        };
        match tree::difference(&ours, &theirs) {
            Some(what) => Err(format!("the recoveries differ, ours and e2fsck's: {what}")),
            None => Ok(Some(device)),
        }
    }

    /// Checks what a journal promises.
    fn promised(&self, tree: &Tree) -> Result<(), String> {
        for (lane, trees) in self.history.lanes.iter().zip(self.trees) {
            self.some_prefix(lane, trees, tree)?;
        }
        self.is_kept(tree)?;
        self.contents(tree, None)
    }

    /// Checks that what the workload did not touch is unchanged.
    fn is_kept(&self, tree: &Tree) -> Result<(), String> {
        let lanes = &self.history.lanes;
        let others = tree
            .iter()
            .filter(|(path, _)| !lanes.iter().any(|lane| lane.owns(path)))
            .map(|(path, entry)| (path.clone(), entry.clone()))
            .collect();
        match tree::difference(self.kept, &others) {
            Some(what) => Err(format!(
                "untouched files have changed, before and now: {what}"
            )),
            None => Ok(()),
        }
    }

    /// Checks that the names of a lane are those after some number of its operations.
    fn some_prefix(&self, lane: &Lane, trees: &[Names], tree: &Tree) -> Result<(), String> {
        let sure = lane.sure(trees, &self.history.syncs, self.at);
        let range = lane.names.may_be(sure, self.at);
        let found: Names = tree
            .iter()
            .filter(|(path, _)| lane.owns(path))
            .map(|(path, entry)| (path.clone(), (entry.id, kind_of(entry))))
            .collect();
        if range.clone().any(|n| trees[n] == found) {
            return Ok(());
        }
        let nearest = range
            .clone()
            .min_by_key(|n| differences(&trees[*n], &found).len());
        let nearest = nearest.expect("it is never empty");
        Err(format!(
            "lane {}: names match no number of operations in {range:?}; nearest {nearest}, except {:?}; \
            operations {:?}",
            lane.number,
            differences(&trees[nearest], &found),
            &lane.names.0[sure.saturating_sub(2)..*range.end()],
        ))
    }

    /// Checks that each file has allowed contents. `untouched`: on a volume that makes no promise about
    /// what was touched since a sync, the names that were not.
    fn contents(&self, tree: &Tree, untouched: Option<&BTreeSet<&str>>) -> Result<(), String> {
        let torn = untouched.is_some();
        for (path, entry) in tree {
            if entry.kind != EntryKind::File || self.kept.contains_key(path) {
                continue;
            }
            let mut lanes = self.history.lanes.iter();
            let history = lanes.find_map(|lane| lane.files.get(&entry.id));
            let history = history.ok_or_else(|| format!("{path}: unknown file {}", entry.id))?;
            let window = history.window(&self.history.syncs, self.at);
            let checked = match torn && !window.is_exact() {
                true => Ok(()),
                false => window.check_size(entry.size),
            };
            // An inode that is being removed may be on the orphan list before its link count is 0. e2fsck
            // (1.47) takes that for a truncation, completes it, and drops the attribute block as well.
            let removed = untouched.is_some_and(|names| !names.contains(path.as_str()));
            let attributes = || match removed {
                true => Ok(()),
                false => window.check_attributes(&entry.attributes, entry.mode, torn),
            };
            checked
                .and_then(|()| window.check(entry.id, &entry.content, torn))
                .and_then(|()| attributes())
                .map_err(|what| format!("{path} (file {}): {what}", entry.id))?;
        }
        Ok(())
    }

    /// Checks what ext2 promises: what was synced and not touched since is there, and no foreign data
    /// anywhere.
    fn plain(&self, tree: &Tree) -> Result<(), String> {
        let mut untouched = BTreeSet::new();
        for (lane, trees) in self.history.lanes.iter().zip(self.trees) {
            for id in lane.files.keys() {
                for path in self.untouched(lane, trees, *id) {
                    if tree.get(path).is_none_or(|entry| entry.id != *id) {
                        return Err(format!("{path} (file {id}) was synced, and is gone"));
                    }
                    untouched.insert(path);
                }
            }
        }
        for (path, entry) in self.kept {
            if tree.get(path) != Some(entry) {
                return Err(format!("{path} was not touched, but has changed"));
            }
        }
        self.contents(tree, Some(&untouched))
    }

    /// The names of a file that a sync covers and that no later operation touched.
    fn untouched<'n>(&self, lane: &Lane, trees: &'n [Names], id: Id) -> Vec<&'n str> {
        let whole = self.history.syncs.iter();
        let whole = whole.filter(|sync| sync.done_by(self.at));
        let whole = whole.map(|sync| lane.names.covered(*sync)).max();
        let sure = lane.sure_for(trees, id, self.at).max(whole.unwrap_or(0));
        let range = lane.names.may_be(sure, self.at);
        let node = (id, Kind::File);
        let names = trees[sure].iter().filter(|(_, found)| **found == node);
        names
            .filter(|(path, node)| range.clone().all(|n| trees[n].get(*path) == Some(*node)))
            .map(|(path, _)| path.as_str())
            .collect()
    }
}

fn kind_of(entry: &Entry) -> Kind {
    match entry.kind {
        EntryKind::Dir => Kind::Dir,
        EntryKind::Symlink => Kind::Symlink(String::from_utf8_lossy(&entry.content).into_owned()),
        EntryKind::File => Kind::File,
    }
}

/// Paths that differ between the two.
fn differences(one: &Names, other: &Names) -> Vec<String> {
    let paths = one
        .keys()
        .chain(other.keys().filter(|path| !one.contains_key(*path)));
    let differing = paths.filter(|path| one.get(*path) != other.get(*path));
    differing
        .map(|path| format!("{path}: {:?} | {:?}", one.get(path), other.get(path)))
        .collect()
}

/// Our recovery: opens the volume for writing, and closes it.
pub fn recover(state: &Image) -> Result<Arc<PowerDevice>, String> {
    recover_with(state, &tree::options())
}

/// The same of a volume that may have recorded that its device failed.
pub fn recover_failed(state: &Image) -> Result<Arc<PowerDevice>, String> {
    recover_with(state, tree::options().allow_unclean(true))
}

fn recover_with(state: &Image, options: &OpenOptions) -> Result<Arc<PowerDevice>, String> {
    let device = Arc::new(PowerDevice::new(state.clone(), 0));
    let volume = external::open_power(options, &device);
    let volume = volume.map_err(|error| format!("our recovery: {error}"))?;
    volume
        .close()
        .map_err(|error| format!("closing after our recovery: {error}"))?;
    Ok(device)
}
