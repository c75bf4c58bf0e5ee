//! [`Image`]: the contents of a small device, cheap to copy, compare and write to a file.
//!
//! Invariants:
//! - A copy shares every page with its origin until one of them is written: a crash state costs only what
//!   differs.
//! - Equality and [`Image::fingerprint`] depend only on the contents, not on what is shared.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The contents of a device, in pages of 4 KiB.
#[derive(Clone)]
pub struct Image {
    pages: Vec<Arc<Page>>,
}

impl Image {
    /// An image of zeros.
    ///
    /// # Panics
    /// If `len_bytes` is not a multiple of 4096.
    pub fn zeros(len_bytes: u64) -> Image {
        assert!(len_bytes.is_multiple_of(PAGE_BYTES as u64));
        let zeros = Arc::new([0; PAGE_BYTES]);
        Image {
            pages: vec![zeros; len_bytes as usize / PAGE_BYTES],
        }
    }

    /// Reads an image from a file.
    ///
    /// # Errors
    /// Those of reading; the file's length must be a multiple of 4096.
    pub fn read_file(path: &Path) -> io::Result<Image> {
        Image::read_file_like(path, &Image { pages: Vec::new() })
    }

    /// As [`Image::read_file`], sharing pages that are equal with `like`.
    ///
    /// # Errors
    /// As [`Image::read_file`].
    pub fn read_file_like(path: &Path, like: &Image) -> io::Result<Image> {
        let bytes = std::fs::read(path)?;
        let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
        if !rest.is_empty() {
            return Err(io::Error::other("not in whole pages"));
        }
        let mut last: Option<Arc<Page>> = None;
        let share = |(index, page): (usize, &Page)| {
            let shared = like.pages.get(index).filter(|known| ***known == *page);
            let shared = shared.or(last.as_ref().filter(|last| ***last == *page));
            let page = shared.map_or_else(|| Arc::new(*page), Arc::clone);
            last = Some(Arc::clone(&page));
            page
        };
        Ok(Image {
            pages: pages.iter().enumerate().map(share).collect(),
        })
    }

    /// Writes the contents to `file`, which currently holds those of `known`; `None`: it is empty.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write_file(&self, file: &File, known: Option<&Image>) -> io::Result<()> {
        file.set_len(self.len_bytes())?;
        for (index, page) in self.pages.iter().enumerate() {
            let there = known.and_then(|known| known.pages.get(index));
            if there.is_none_or(|there| !Arc::ptr_eq(there, page)) {
                file.write_all_at(&page[..], (index * PAGE_BYTES) as u64)?;
            }
        }
        Ok(())
    }

    /// Its first `bytes`, and the rest.
    ///
    /// # Panics
    /// If that is not a multiple of 4096, or past the end.
    pub fn split_at(&self, bytes: u64) -> (Image, Image) {
        assert!(bytes.is_multiple_of(PAGE_BYTES as u64));
        let (first, rest) = self.pages.split_at(bytes as usize / PAGE_BYTES);
        let image = |pages: &[Arc<Page>]| Image {
            pages: pages.to_vec(),
        };
        (image(first), image(rest))
    }

    /// It, and another one behind it.
    #[must_use]
    pub fn joined(mut self, rest: Image) -> Image {
        self.pages.extend(rest.pages);
        self
    }

    /// Length in bytes.
    pub fn len_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Copies the bytes at `offset` into `to`.
    ///
    /// # Panics
    /// If the range extends past the end.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        let mut at = offset as usize;
        let mut left = to;
        while !left.is_empty() {
            let (inside, n) = within(at, left.len());
            let (now, rest) = left.split_at_mut(n);
            now.copy_from_slice(&self.pages[at / PAGE_BYTES][inside..][..n]);
            (left, at) = (rest, at + n);
        }
    }

    /// Replaces the bytes at `offset`.
    ///
    /// # Panics
    /// If the range extends past the end.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset as usize;
        let mut left = bytes;
        while !left.is_empty() {
            let (inside, n) = within(at, left.len());
            let (now, rest) = left.split_at(n);
            let page = &mut self.pages[at / PAGE_BYTES];
            if page[inside..][..n] != *now {
                Arc::make_mut(page)[inside..][..n].copy_from_slice(now);
            }
            (left, at) = (rest, at + n);
        }
    }

    /// Hash of the differences from `base`, of which this must be a descendant: equal for equal contents.
    pub fn fingerprint(&self, base: &Image) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (index, (page, old)) in self.pages.iter().zip(&base.pages).enumerate() {
            if !Arc::ptr_eq(page, old) && page != old {
                (index, page).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.pages.len() == other.pages.len()
            && std::iter::zip(&self.pages, &other.pages).all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
}

/// Position of byte `at` in its page, and how many of `len` bytes are in that page.
fn within(at: usize, len: usize) -> (usize, usize) {
    let inside = at % PAGE_BYTES;
    (inside, len.min(PAGE_BYTES - inside))
}
