//! Random work of one actor.

use throughline::{Error, Fallocate, Reason, Result};
use throughline_testing::attributes::{NAMES, VALUES};

use super::actor::{Actor, How};
use super::history::Lane;
use super::names::{Id, Kind, is_in};
use super::recipes::Recipe;

/// Maximum total size of an actor's files in bytes, so that no volume fills up.
const MAX_BYTES: u64 = 1200 << 10;
/// Maximum number of names.
const MAX_NAMES: usize = 60;

/// A random generator, and an actor that carries out its choices.
pub struct Player<'a, 'v> {
    pub actor: &'a mut Actor<'v>,
    pub random: fastrand::Rng,
    pub recipe: &'static Recipe,
    counter: u32,
    /// Limit of the total size of its files, in bytes.
    most_bytes: u64,
}

impl<'a, 'v> Player<'a, 'v> {
    pub fn new(actor: &'a mut Actor<'v>, seed: u64, recipe: &'static Recipe) -> Self {
        Player {
            actor,
            random: fastrand::Rng::with_seed(seed),
            recipe,
            counter: 0,
            most_bytes: MAX_BYTES,
        }
    }

    /// Makes this many moves.
    ///
    /// # Errors
    /// Any error of the volume: none is expected.
    pub fn play(&mut self, moves: u32) -> Result<()> {
        let home = Lane::home(self.actor.lane.number);
        if !self.actor.names.contains_key(&home) {
            self.actor.mkdir(&home)?;
        }
        for _ in 0..moves {
            match self.one() {
                Err(Error::Caller(Reason::NoSpace)) => self.actor.full += 1,
                done => done?,
            }
            self.make_room()?;
        }
        Ok(())
    }

    /// Fills the volume, and then makes moves: freed space is needed again at once.
    ///
    /// # Errors
    /// As [`Player::play`].
    pub fn play_full(&mut self, moves: u32) -> Result<()> {
        self.most_bytes = u64::MAX;
        let home = Lane::home(self.actor.lane.number);
        self.actor.mkdir(&home)?;
        for number in 0.. {
            let id = self.actor.create(&format!("{home}/ballast{number}"))?;
            let how = self.how_large();
            self.actor.append(id, 300 << 10, how)?;
            if self.actor.full > 0 {
                break;
            }
        }
        self.play(moves)
    }

    fn how_large(&mut self) -> How {
        match self.random.bool() {
            true => How::Buffered,
            false => How::Direct,
        }
    }

    fn one(&mut self) -> Result<()> {
        match self.random.u8(..100) {
            0..12 => self.create().map(drop),
            12..21 => self.write(),
            21..28 => self.attribute(),
            28..40 => self.append(),
            40..50 => self.sync(),
            50..56 => self.resize(),
            56..60 => self.allocate(),
            60..70 => self.rename(),
            70..72 => self.exchange(),
            72..75 => self.link(),
            75..82 => self.remove(),
            82..86 => self.mkdir(),
            86..89 => self.symlink(),
            89..93 => self.replace_safely(),
            93..95 => self.storm(),
            95 => self.actor.sync_volume(),
            96 => self.actor.sync_home(),
            97..99 => self.close_or_open(),
            _ => self.read(),
        }
    }

    fn fresh_path(&mut self) -> String {
        self.counter += 1;
        let number = self.actor.lane.number;
        let mut name = format!("n{}", self.counter);
        if self.random.u8(..4) == 0 {
            name.push_str(&"x".repeat(self.random.usize(..60)));
        }
        if self.random.u8(..4) == 0 {
            return format!("{}{name}", Lane::shared(number));
        }
        let dirs = self.actor.paths(|kind| *kind == Kind::Dir);
        format!("{}/{name}", self.random.choice(dirs).expect("its home"))
    }

    fn any_file(&mut self) -> Option<String> {
        let files = self.actor.paths(|kind| *kind == Kind::File);
        self.random.choice(files)
    }

    /// An open file, sometimes without a name.
    fn any_open(&mut self) -> Result<Id> {
        if self.random.u8(..8) == 0
            && let Some(id) = self.random.choice(self.actor.open.keys())
        {
            return Ok(*id);
        }
        match self.any_file() {
            Some(path) => self.actor.reopen(&path),
            None => self.create(),
        }
    }

    fn create(&mut self) -> Result<Id> {
        let path = self.fresh_path();
        let id = self.actor.create(&path)?;
        if self.random.u8(..3) > 0 {
            let (len, how) = (self.length(), self.how());
            self.actor.append(id, len, how)?;
        }
        Ok(id)
    }

    fn length(&mut self) -> u64 {
        let sectors = match self.random.u8(..10) {
            0..4 => self.random.u64(1..9),
            4..8 => self.random.u64(1..40),
            8 => self.random.u64(1..200),
            _ => [2, 8, 16, 24][self.random.usize(..4)],
        };
        sectors * 512
    }

    fn how(&mut self) -> How {
        match self.random.u8(..10) {
            0..6 => How::Buffered,
            6..9 => How::Direct,
            _ => How::Synced,
        }
    }

    fn write(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let size = self.actor.sectors(id);
        let far = self.random.u8(..8) == 0;
        let at = self.random.u64(..=size + if far { 700 } else { 0 });
        let (len, how) = (self.length(), self.how());
        self.actor.write(id, at * 512, len, how)
    }

    fn append(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let (len, how) = (self.length(), self.how());
        self.actor.append(id, len, how)?;
        match self.random.u8(..3) {
            0 => self.actor.sync(id, self.random.bool()),
            _ => Ok(()),
        }
    }

    fn attribute(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let name = self.random.u8(..NAMES.len() as u8);
        let value = (self.random.u8(..4) > 0).then(|| self.random.u8(..VALUES));
        self.actor.set_attribute(id, name, value)?;
        match self.random.u8(..3) {
            0 => self.actor.sync(id, self.random.bool()),
            _ => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let data_only = self.random.u8(..4) == 0;
        match self.random.u8(..4) {
            0 => self.actor.post(id),
            1 => self.actor.sync_posted(data_only),
            _ => self.actor.sync(id, data_only),
        }
    }

    fn resize(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let size = self.actor.sectors(id);
        let len = match self.random.u8(..4) {
            0 => 0,
            1 => size + self.random.u64(..100),
            _ => self.random.u64(..=size),
        };
        self.actor.set_len(id, len * 512)
    }

    fn allocate(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let at = self.random.u64(..=self.actor.sectors(id)) * 512;
        let len = self.length();
        let modes = [
            Fallocate::PunchHole,
            Fallocate::Allocate,
            Fallocate::KeepSize,
        ];
        let modes = if self.recipe.extents {
            &modes[..]
        } else {
            &modes[..1]
        };
        let mode = modes[self.random.usize(..modes.len())];
        self.actor.allocate(id, mode, at, len)
    }

    fn rename(&mut self) -> Result<()> {
        let home = Lane::home(self.actor.lane.number);
        let movable = self.actor.paths(|_| true);
        let movable = movable.into_iter().filter(|path| *path != home);
        let Some(from) = self.random.choice(movable.collect::<Vec<_>>()) else {
            return Ok(());
        };
        let is_dir = self.actor.names[&from].1 == Kind::Dir;
        let over = self.random.bool() && !is_dir;
        let to = match self.any_file().filter(|_| over) {
            Some(to) => to,
            None => self.fresh_path(),
        };
        let same = self
            .actor
            .names
            .get(&to)
            .is_some_and(|node| node.0 == self.actor.names[&from].0);
        if same || is_in(&to, &from) {
            return Ok(()); // does nothing, or cannot be
        }
        self.actor.rename(&from, &to)
    }

    fn exchange(&mut self) -> Result<()> {
        match (self.any_file(), self.any_file()) {
            (Some(one), Some(other)) if self.actor.names[&one] != self.actor.names[&other] => {
                self.actor.exchange(&one, &other)
            }
            _ => Ok(()),
        }
    }

    fn link(&mut self) -> Result<()> {
        let to = self.fresh_path();
        match self.any_file() {
            Some(from) => self.actor.link(&from, &to),
            None => Ok(()),
        }
    }

    fn remove(&mut self) -> Result<()> {
        let home = Lane::home(self.actor.lane.number);
        let all = self.actor.paths(|_| true);
        let empty = |path: &&String| {
            **path != home
                && !all
                    .iter()
                    .any(|other| *other != **path && is_in(other, path))
        };
        let removable: Vec<&String> = all.iter().filter(empty).collect();
        let Some(path) = self.random.choice(removable) else {
            return Ok(());
        };
        let id = self.actor.names[path].0;
        if self.random.bool() {
            self.actor.close(id);
        }
        self.actor.remove(path)
    }

    fn mkdir(&mut self) -> Result<()> {
        let path = self.fresh_path();
        self.actor.mkdir(&path).map(drop)
    }

    fn symlink(&mut self) -> Result<()> {
        let path = self.fresh_path();
        let target = "t".repeat(self.random.usize(1..300));
        self.actor.symlink(&target, &path).map(drop)
    }

    /// As careful programs do: a new file, synced, renamed over the old one.
    fn replace_safely(&mut self) -> Result<()> {
        let to = self.any_file();
        let new = self.fresh_path();
        let id = self.actor.create(&new)?;
        let len = self.length();
        self.actor.append(id, len, How::Buffered)?;
        self.actor.sync(id, false)?;
        if let Some(to) = to {
            self.actor.rename(&new, &to)?;
            if self.random.bool() {
                self.actor.sync(id, false)?;
            }
        }
        Ok(())
    }

    /// Creates many small files at once, or removes all of them.
    fn storm(&mut self) -> Result<()> {
        if self.actor.names.len() > MAX_NAMES / 2 {
            for _ in 0..20 {
                self.remove()?;
            }
            return Ok(());
        }
        for _ in 0..12 {
            let path = self.fresh_path();
            let id = self.actor.create(&path)?;
            self.actor.append(id, 512, How::Buffered)?;
            self.actor.close(id);
        }
        Ok(())
    }

    fn close_or_open(&mut self) -> Result<()> {
        if let Some(id) = self.random.choice(self.actor.open.keys()).copied() {
            self.actor.close(id);
        }
        Ok(())
    }

    fn read(&mut self) -> Result<()> {
        let id = self.any_open()?;
        let len = self.length();
        self.actor.read(id, 0, len)
    }

    /// Removes and truncates until there is space.
    fn make_room(&mut self) -> Result<()> {
        while self.actor.names.len() > MAX_NAMES {
            self.remove()?;
        }
        while self.actor.bytes() > self.most_bytes {
            // Unreachable files are freed on close.
            self.actor.close_nameless();
            let files = self.actor.paths(|kind| *kind == Kind::File);
            let largest = files
                .iter()
                .max_by_key(|path| self.actor.contents[&self.actor.names[*path].0].size);
            if let Some(path) = largest {
                let id = self.actor.reopen(path)?;
                self.actor.set_len(id, 0)?;
            }
        }
        Ok(())
    }
}
