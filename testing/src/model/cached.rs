//! The driver's calls on file contents: by path and through files kept open, with handles of all kinds.

use super::drive::{Check, Driver, same};
use super::op::{Data, Op};
use super::subject::{Answer, Refusal, Subject};
use super::tree::Id;

impl Driver {
    pub(super) fn content_call(&mut self, subject: &mut dyn Subject, op: &Op) -> Check {
        match op {
            Op::Write(path, handle, form, offset, data) => {
                let answer = subject.write(&path.0, *handle, *form, *offset, &data.bytes());
                let id = self.tree.find_file(&path.0);
                self.written(subject, answer, id, *offset, *data)
            }
            Op::Append(path, handle, data) => {
                let answer = subject.append(&path.0, *handle, &data.bytes());
                match self.tree.find_file(&path.0) {
                    Ok(id) => self.appended(subject, answer, id, *data),
                    Err(expected) => same("append", answer, Err(expected)),
                }
            }
            Op::Read(path, handle, offset, len) => {
                let mut bytes = vec![0xee; *len];
                let answer = subject.read(&path.0, *handle, *offset, &mut bytes);
                let id = self.tree.find_file(&path.0);
                self.was_read(answer, id, *offset, &bytes)
            }
            Op::Flush(path, flush) => {
                let expected = self.tree.find_file(&path.0).map(drop);
                same("flush", subject.flush(&path.0, *flush), expected)
            }
            Op::CopyRange(from, from_offset, to, to_offset, handle, len) => {
                let (from, to) = ((&from.0[..], *from_offset), (&to.0[..], *to_offset));
                let answer = subject.copy_range(from, to, *handle, *len);
                self.copied(subject, answer, from, to, *len)
            }
            other => Err(format!(
                "{other:?} is not a call on contents: a bug in the test"
            )),
        }
    }

    pub(super) fn kept(&mut self, subject: &mut dyn Subject, op: &Op) -> Check {
        let of = |driver: &Driver, slot: &usize| driver.tree.kept[*slot];
        match op {
            Op::Keep(slot, path, handle) => {
                let answer = subject.keep(*slot, &path.0, *handle);
                self.judge(subject, answer, 0, |tree| tree.keep(*slot, &path.0))
            }
            Op::WriteKept(slot, form, offset, data) => {
                let Some(id) = of(self, slot) else {
                    return Ok(());
                };
                let answer = subject.write_kept(*slot, *form, *offset, &data.bytes());
                self.written(subject, answer, Ok(id), *offset, *data)
            }
            Op::AppendKept(slot, data) => {
                let Some(id) = of(self, slot) else {
                    return Ok(());
                };
                let answer = subject.append_kept(*slot, &data.bytes());
                self.appended(subject, answer, id, *data)
            }
            Op::ReadKept(slot, offset, len) => {
                let Some(id) = of(self, slot) else {
                    return Ok(());
                };
                let mut bytes = vec![0xee; *len];
                let answer = subject.read_kept(*slot, *offset, &mut bytes);
                self.was_read(answer, Ok(id), *offset, &bytes)
            }
            Op::TruncateKept(slot, len) => {
                let Some(id) = of(self, slot) else {
                    return Ok(());
                };
                let answer = subject.truncate_kept(*slot, *len);
                self.judge(subject, answer, 0, |tree| {
                    tree.content(id).set_len(*len);
                    tree.node_mut(id).modified = None;
                    Ok(())
                })
            }
            Op::FlushKept(slot, flush) if of(self, slot).is_some() => {
                same("flush", subject.flush_kept(*slot, *flush), Ok(()))
            }
            Op::AdviseKept(slot, advice, offset, len) if of(self, slot).is_some() => same(
                "advise",
                subject.advise(*slot, *advice, *offset, *len),
                Ok(()),
            ),
            Op::CloseKept(slot) if of(self, slot).is_some() => {
                self.tree.close_kept(*slot);
                same("close", subject.close_kept(*slot), Ok(()))
            }
            _ => Ok(()),
        }
    }

    fn appended(
        &mut self,
        subject: &mut dyn Subject,
        answer: Answer<(u64, usize)>,
        id: Id,
        data: Data,
    ) -> Check {
        let end = self.tree.content(id).len();
        if let Ok((at, _)) = answer
            && at != end
        {
            return Err(format!("appended at {at}, expected {end}"));
        }
        self.written(subject, answer.map(|(_, n)| n), Ok(id), end, data)
    }

    fn copied(
        &mut self,
        subject: &mut dyn Subject,
        answer: Answer<u64>,
        from: (&[u8], u64),
        to: (&[u8], u64),
        len: u64,
    ) -> Check {
        let (source, target) = match (self.tree.find_file(from.0), self.tree.find_file(to.0)) {
            (Ok(source), Ok(target)) => (source, target),
            (Err(wrong), Err(other)) => {
                return same("copy_range", answer.map(drop), Err([wrong, other].concat()));
            }
            (Err(wrong), _) | (_, Err(wrong)) => {
                return same("copy_range", answer.map(drop), Err(wrong));
            }
        };
        let mut bytes = vec![0; len as usize];
        let there = self.tree.content(source).read(from.1, &mut bytes);
        if answer == Err(Refusal::NoSpace) {
            self.check_full(subject, self.blocks(there as u64))?;
            return self.partly_copied(subject, to, target, &bytes[..there]);
        }
        let n = answer.map_err(|refusal| format!("copy_range: {refusal:?}"))? as usize;
        if n > there || n == 0 && there > 0 {
            return Err(format!("copied {n} of {there} bytes"));
        }
        if n < there {
            self.check_full(subject, self.blocks((there - n) as u64))?;
        }
        self.tree.content(target).write(to.1, &bytes[..n]);
        self.tree.node_mut(target).modified = None;
        Ok(())
    }

    /// After a copy that ran out of space: its first part may be done.
    fn partly_copied(
        &mut self,
        subject: &mut dyn Subject,
        to: (&[u8], u64),
        target: Id,
        bytes: &[u8],
    ) -> Check {
        let size = self.tree.content(target).len();
        let now = subject
            .stat(to.0)
            .map_err(|refusal| format!("stat: {refusal:?}"))?
            .len_bytes;
        if now != size && !(now > size && now > to.1 && now <= to.1 + bytes.len() as u64) {
            return Err(format!(
                "an incomplete copy left a size of {now} instead of {size}"
            ));
        }
        let mut found = vec![0; bytes.len()];
        let n = subject
            .read(to.0, self.reader, to.1, &mut found)
            .map_err(|refusal| format!("read: {refusal:?}"))?;
        let content = self.tree.content(target);
        content.set_len(now);
        let mut old = vec![0; n];
        content.read(to.1, &mut old);
        // Past the copied part nothing may have changed.
        let copied = (0..n)
            .rfind(|at| found[*at] != old[*at])
            .map_or(0, |at| at + 1);
        if found[..copied] != bytes[..copied] {
            return Err("a part of a copy that is neither old nor new".to_owned());
        }
        content.write(to.1, &bytes[..copied]);
        self.tree.node_mut(target).modified = None;
        Ok(())
    }
}
