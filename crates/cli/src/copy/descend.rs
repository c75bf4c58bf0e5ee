//! Copies directories: creates or merges them at the target, descends, and sets their attributes after their
//! last entry.

use rustix::io::Errno;

use super::Follow;
use super::extended::Extended;
use super::side::{Folder, Id, Meta};
use super::tree::{At, Walker};
use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::walk::MAX_DEPTH;

impl Walker<'_> {
    /// `seen`: what [`Folder::meta`] returned for the source.
    pub(super) fn folder(&mut self, from: At<'_>, to: At<'_>, seen: &Meta) -> Result<(), Failure> {
        let cannot = || format!("cannot copy directory {}", from.place);
        let source = self.patiently(|walker| {
            let source = from.folder.folder(from.name, walker.follows());
            source.doing(cannot)
        });
        // What was opened counts. By now it may be another directory, or what is mounted on demand.
        let opened = match &source {
            Ok(source) => Some(source.own().doing(cannot)?),
            Err(_) => None,
        };
        let meta = opened.as_ref().unwrap_or(seen);
        self.may_enter(from, to, meta)?;
        let (target, created) = self.target_folder(from, to, meta)?;
        let target_id = target.own().doing(cannot)?.id;
        let root = *self.root.get_or_insert(target_id);
        if meta.id == root {
            return Err(into_itself(from, to));
        }
        let source = source?;
        self.depth += 1;
        let is_new = created && target.adds_names_alone();
        let folders = (source.as_ref(), target.as_ref());
        let walked = self.entries(folders, (from.place, to.place), is_new);
        self.depth -= 1;
        if self.options.follow == Follow::Always {
            self.seen.remove(&meta.id);
        }
        self.finish_folder(source.as_ref(), target.as_ref(), (meta, created), to.place)?;
        walked
    }

    /// Opens the directory at the target, which is made if it is not there. Returns whether it was made.
    fn target_folder(
        &mut self,
        from: At<'_>,
        to: At<'_>,
        meta: &Meta,
    ) -> Result<(Box<dyn Folder>, bool), Failure> {
        let top = self.depth == 0;
        let created = match to.folder.meta(to.name, top) {
            Ok(existing) if existing.is_dir() => false,
            Ok(_) => {
                return Err(Failure::plain(format!(
                    "cannot overwrite non-directory {} with directory {}",
                    to.place, from.place
                )));
            }
            Err(problem) if problem.errno == Some(Errno::NOENT) => {
                // During the copy, the owner must be able to enter the directory, whatever its final mode.
                let mode = self.new_mode(meta) | 0o700;
                to.folder
                    .make_folder(to.name, mode)
                    .doing(|| format!("cannot create directory {}", to.place))?;
                if self.umask & 0o700 != 0 {
                    self.let_owner_in(to)?;
                }
                self.made(from, to)?;
                true
            }
            Err(problem) => return Err(problem.met(format!("cannot stat {}", to.place))),
        };
        let cannot = || format!("cannot open directory {}", to.place);
        let target =
            self.patiently(|_| to.folder.folder(to.name, top && !created).doing(cannot))?;
        // Another directory would get what is in this one, and in the end its permissions.
        if created && !target.is_fresh().doing(cannot)? {
            return Err(Problem::new("another directory has replaced it meanwhile").met(cannot()));
        }
        Ok((target, created))
    }

    /// Sets the attributes of a directory, after its last entry.
    fn finish_folder(
        &self,
        source: &dyn Folder,
        target: &dyn Folder,
        (meta, created): (&Meta, bool),
        place: &Place,
    ) -> Result<(), Failure> {
        let preserve = self.options.preserve;
        let cannot = || format!("cannot preserve the attributes of {place}");
        let mut change = self.change(meta, created);
        let mode = self.source_mode(meta);
        if created && change.mode.is_none() && mode & !self.umask & 0o700 != 0o700 {
            change.mode = Some(mode & 0o777 & !self.umask);
        }
        if preserve.reads_attributes() {
            let holder = source.own_holder();
            let read = holder.and_then(|holder| Extended::read(&holder, meta.kind, preserve));
            change.extended = read.doing(cannot)?;
        }
        if !change.is_empty() {
            let refused = target.set_own(&change).doing(cannot)?;
            self.shared.refused(refused, place);
        }
        Ok(())
    }

    /// Gives the owner of a new directory the permissions that the umask took away, until the directory is
    /// complete.
    fn let_owner_in(&self, to: At<'_>) -> Result<(), Failure> {
        let cannot = || format!("cannot set permissions of directory {}", to.place);
        to.folder.let_owner_in(to.name).doing(cannot)
    }

    /// Refuses cycles. In a sound tree, each directory occurs once. If links are followed, it may occur
    /// again, but not inside itself.
    fn may_enter(&mut self, from: At<'_>, to: At<'_>, meta: &Meta) -> Result<(), Failure> {
        let cannot = || format!("cannot copy directory {}", from.place);
        if self.root == Some(meta.id) {
            return Err(into_itself(from, to));
        }
        if self.depth >= MAX_DEPTH {
            return Err(
                Problem::new(format!("more than {MAX_DEPTH} nested directories"))
                    .with_next("copy the deeper directories separately")
                    .met(cannot()),
            );
        }
        if !self.seen.insert(meta.id) {
            let problem = match (self.options.follow, meta.id) {
                (Follow::Always, _) => {
                    Problem::new("a symbolic link leads back to it").with_next("copy without -L")
                }
                (_, Id::Host(..)) => Problem::new("it occurs a second time in the source"),
                (_, Id::Image(_, ino)) => Problem::new(format!(
                    "corrupt: directory inode {ino} occurs a second time"
                ))
                .with_next("check with 'e2fsck -fn IMAGE', repair with 'e2fsck -f IMAGE'"),
            };
            return Err(problem.met(cannot()));
        }
        Ok(())
    }

    fn entries(
        &mut self,
        (from, to): (&dyn Folder, &dyn Folder),
        (source, target): (&Place, &Place),
        is_new: bool,
    ) -> Result<(), Failure> {
        let names = self.patiently(|_| {
            let names = from.names();
            names.doing(|| format!("cannot read directory {source}"))
        })?;
        for name in names {
            let copied = name
                .doing(|| format!("cannot read directory {source}"))
                .and_then(|name| {
                    let (source, target) = (source.join(&name), target.join(&name));
                    let to = At {
                        is_new,
                        ..At::new(to, &name, &target)
                    };
                    self.entry(At::new(from, &name, &source), to)
                });
            match copied {
                Ok(()) => {}
                Err(failure) if failure.ends_command() => return Err(failure),
                Err(failure) => self.shared.complain(&failure),
            }
        }
        Ok(())
    }
}

fn into_itself(from: At<'_>, to: At<'_>) -> Failure {
    Failure::plain(format!(
        "cannot copy a directory, {}, into itself, {}",
        from.place, to.place
    ))
}
