//! Random operations on a file, compared with a model in memory.

use super::*;

/// The expected contents of a file.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at as usize + bytes.len();
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[at as usize..end].copy_from_slice(bytes);
    }

    fn zero(&mut self, from: u64, to: u64) {
        let to = (to as usize).min(self.0.len());
        if (from as usize) < to {
            self.0[from as usize..to].fill(0);
        }
    }
}

struct Step<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    file: &'a OpenFile,
    block: u64,
}

impl Step<'_> {
    /// One random operation, on the file and on the model; returns its description.
    fn take(&self, rng: &mut Rng, model: &mut Model) -> String {
        let reach = 40 * self.block;
        let (at, len) = (rng.below(reach), 1 + rng.below(9 * self.block));
        let (first, blocks) = (rng.below(40) * self.block, (1 + rng.below(9)) * self.block);
        match rng.below(16) {
            0..5 => self.write(true, at, len, model),
            5 => self.write(false, at, len, model),
            6 => self.write(false, first, blocks, model),
            7 => self.append(rng.below(2) == 0, len, model),
            8 => {
                self.fs.truncate(self.inode, at).expect("truncate");
                model.0.resize(at as usize, 0);
                format!("truncate {at}")
            }
            9 => self.allocate(Fallocate::PunchHole, at, len, model),
            10 => self.allocate(Fallocate::ZeroRangeKeepSize, at, len, model),
            11 => self.allocate(Fallocate::Collapse, first, blocks, model),
            12 => self.allocate(Fallocate::Insert, first, blocks, model),
            13 => self.allocate(Fallocate::KeepSize, at, len, model),
            14 => {
                self.file.start_flush(at..at + len);
                format!("start flush {at} {len}")
            }
            _ => {
                self.file.sync(true).expect("sync");
                "sync".into()
            }
        }
    }

    fn write(&self, buffered: bool, at: u64, len: u64, model: &mut Model) -> String {
        let bytes = pattern(at + len, at, len as usize);
        let bufs = [IoSlice::new(&bytes)];
        let done = self.file.write(buffered, Some(at), &bufs);
        assert_eq!(done.expect("a write"), (at, bytes.len()));
        model.write(at, &bytes);
        format!("write {buffered} {at} {len}")
    }

    fn append(&self, buffered: bool, len: u64, model: &mut Model) -> String {
        let at = model.0.len() as u64;
        let bytes = pattern(len, at, len as usize);
        let bufs = [IoSlice::new(&bytes)];
        let done = self.file.write(buffered, None, &bufs);
        assert_eq!(done.expect("an append"), (at, bytes.len()));
        model.write(at, &bytes);
        format!("append {buffered} {len}")
    }

    fn allocate(&self, mode: Fallocate, at: u64, len: u64, model: &mut Model) -> String {
        let size = model.0.len() as u64;
        let end = at + len;
        let done = self.fs.fallocate(self.inode, mode, at, len);
        let cluster = u64::from(self.fs.geo.block_bytes) << self.fs.geo.cluster_ratio_log;
        let is_whole = at.is_multiple_of(cluster) && len.is_multiple_of(cluster);
        match (mode, &done) {
            (_, Err(Error::Unsupported(_))) => {}
            (Fallocate::Collapse, Err(Error::Caller(Reason::Invalid(_)))) => {
                assert!(end >= size || !is_whole);
            }
            (Fallocate::Insert, Err(Error::Caller(Reason::Invalid(_)))) => {
                assert!(at >= size || !is_whole);
            }
            (_, Err(error)) => panic!("{mode:?} {at} {len}: {error}"),
            (Fallocate::PunchHole | Fallocate::ZeroRangeKeepSize, Ok(())) => model.zero(at, end),
            (Fallocate::Collapse, Ok(())) => {
                model.0.drain(at as usize..end as usize);
            }
            (Fallocate::Insert, Ok(())) => {
                let zeros = std::iter::repeat_n(0, len as usize);
                model.0.splice(at as usize..at as usize, zeros);
            }
            (_, Ok(())) => {}
        }
        format!("{mode:?} {at} {len}")
    }
}

#[test]
fn operations_of_all_kinds_agree_with_a_model() {
    for (seed, (size, args)) in SHAPES.iter().enumerate() {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let what = format!("{args:?}, seed {seed}");
        let fs = open(&image, 2 << 20);
        let inode = create(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        let block = u64::from(fs.geo.block_bytes);
        let step = Step {
            fs: &fs,
            inode: &inode,
            file: &file,
            block,
        };
        let (mut rng, mut model) = (Rng::new(seed as u64 + 77), Model::default());
        let rounds = if block > 4096 { 60 } else { 400 };
        let mut done = Vec::new();
        for round in 0..rounds {
            done.push(step.take(&mut rng, &mut model));
            assert_eq!(file.size(), model.0.len() as u64, "{what}: {done:?}");
            let buffered = rng.below(3) > 0;
            if round % 7 == 0 {
                let seen = read(&file, buffered, 0, model.0.len() + 100);
                let wrong = seen.iter().zip(&model.0).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{what}, {buffered}: {done:?}");
                assert_eq!(seen.len(), model.0.len(), "{what}: {done:?}");
            }
            let at = rng.below(model.0.len() as u64 + 1);
            let len = rng.below(3 * block) as usize;
            let end = (at as usize + len).min(model.0.len());
            let seen = read(&file, buffered, at, len);
            assert!(
                seen == model.0[at as usize..end],
                "{what}, {buffered} {at} {len}: {done:?}"
            );
        }
        drop((file, inode));
        close(&image, fs, &what);
        let fs = open(&image, 2 << 20);
        let inode = lookup(&fs, "a");
        let file = fs.open_file(&inode).expect("open");
        assert!(
            read(&file, false, 0, model.0.len() + 1) == model.0,
            "{what}: reopened"
        );
        drop((file, inode));
        close(&image, fs, &what);
    }
}
