//! The process that runs the load through the library and is killed.

use std::path::PathBuf;

use throughline::{
    Attributes, Dir, DirtyLimits, Error, File, FileOptions, NewNode, OpenOptions, Reason, Volume,
};
use throughline_testing::attributes;

use crate::diary::load::{Found, How, Load, Place};
use crate::diary::tree;
use crate::diary::{Diary, Op, Promise};

/// The environment variable that makes the process run the load, and holds the parameters.
const ORDER: &str = "THROUGHLINE_KILL_ORDER";

/// The parameters of the process.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) image: PathBuf,
    pub(crate) diary: PathBuf,
    /// The volume is closed when the load has finished.
    pub(crate) load: Load,
}

impl Order {
    /// The environment variable with these parameters.
    pub(crate) fn to_environment(&self) -> (&'static str, String) {
        let (image, diary) = (self.image.display(), self.diary.display());
        let Load {
            seed,
            run,
            ops,
            skips_syncs,
        } = self.load;
        let skips_syncs = u8::from(skips_syncs);
        let text = format!("{image}\n{diary}\n{seed}\n{run}\n{ops}\n{skips_syncs}");
        (ORDER, text)
    }

    /// The parameters from the environment, if this process is the load.
    pub(crate) fn from_environment() -> Option<Order> {
        let text = std::env::var(ORDER).ok()?;
        let lines: Vec<&str> = text.lines().collect();
        let number = |index: usize| lines[index].parse().expect("a number of the order");
        Some(Order {
            image: lines[0].into(),
            diary: lines[1].into(),
            load: Load {
                seed: number(2),
                run: number(3),
                ops: number(4),
                skips_syncs: number(5) != 0,
            },
        })
    }
}

/// Runs the load. Returns only if the process is not killed.
pub(crate) fn run(order: &Order) {
    let diary = Diary::create(&order.diary);
    if let Err(error) = work(order, &diary) {
        diary.failed(&error.to_string());
    }
}

fn work(order: &Order, diary: &Diary) -> throughline::Result<()> {
    let limits = DirtyLimits::new(Some(1 << 20 << (order.load.seed % 4)), None);
    let volume = OpenOptions::new()
        .write(true)
        .cache_bytes(Some(8 << 20))
        .dirty_limits(limits)
        .open(&order.image)?;
    diary.opened();
    order.load.run(&volume, diary)?;
    diary.begin(0, &Op::Close);
    volume.close()?;
    diary.end(0);
    Ok(())
}

impl Place for Volume {
    type File = File;
    type Error = Error;

    fn list(&self, dir: &str) -> throughline::Result<Vec<String>> {
        self.read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn look(&self, path: &str) -> throughline::Result<Found> {
        let metadata = self.metadata(path)?;
        let found = tree::attributes_of_file(&self.open_file(path)?)?;
        let attributes = attributes::Attributes::of(&found, metadata.mode());
        Ok(Found {
            path: path.to_owned(),
            id: metadata.uid(),
            size: metadata.len(),
            attributes: attributes.expect("the attributes were checked before"),
        })
    }

    fn create(&self, path: &str, id: u32) -> throughline::Result<()> {
        self.make_node(path, NewNode::File, &Attributes::new().uid(id))
            .map(drop)
    }

    fn open(&self, path: &str, how: How) -> throughline::Result<File> {
        FileOptions::new()
            .direct(how.direct)
            .data_sync(how.promise == Promise::Data)
            .sync(how.promise == Promise::All)
            .open(self, path)
    }

    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> throughline::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn sync(&self, file: &File, data_only: bool) -> throughline::Result<()> {
        match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        }
    }

    fn set_len(&self, file: &File, size: u64) -> throughline::Result<()> {
        file.set_len(size)
    }

    fn set_attribute(
        &self,
        path: &str,
        name: &str,
        value: Option<&[u8]>,
    ) -> throughline::Result<bool> {
        let attributes = self.open_file(path)?.xattrs();
        let done = match value {
            Some(value) => attributes.set(name, value),
            None => attributes.remove(name),
        };
        match done {
            Err(Error::Caller(Reason::NoSpace)) => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn rename(&self, from: &str, to: &str) -> throughline::Result<()> {
        Dir::rename(self, from, to)
    }

    fn unlink(&self, path: &str) -> throughline::Result<()> {
        self.remove_file(path)
    }

    fn wide(&self, _dir: &str) -> Op {
        Op::SyncAll
    }

    fn sync_wide(&self, _dir: &str) -> throughline::Result<()> {
        Volume::sync(self)
    }
}
