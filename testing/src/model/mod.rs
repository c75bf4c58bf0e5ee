//! A reference model of a file system, and a driver that runs random operations on the model and on a file
//! system under test.
//!
//! ```text
//!  Generator ── Op ──► Driver ──► Subject (the file system under test)
//!     (seed)             │           │ answer
//!                        ▼           ▼
//!                      Tree ◄── compared: answers, attributes, names, contents
//! ```
//!
//! Invariants:
//! - The same seed and [`Bounds`] give the same operations, as long as the answers are the same.
//! - Every answer is compared. Only "no space" is left to the subject; it is checked for plausibility.

mod cached;
mod compare;
mod content;
mod drive;
mod generate;
mod hot;
mod op;
mod subject;
mod tree;

pub use content::Content;
pub use drive::Driver;
pub use generate::{Bounds, Profile};
pub use op::Op;
pub use subject::{
    Advice, Answer, FallocateMode, FileKind, Flush, Form, Handle, Refusal, RenameMode, SLOTS,
    Space, Stat, Subject,
};
pub use tree::{Body, Expected, Id, Node, ROOT, Tree};
