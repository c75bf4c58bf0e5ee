//! Shared by the oracle tests: images made by `mke2fs` over the features, and the volume as the model's
//! subject.
#![allow(dead_code, unreachable_pub)] // each test uses a part of it

pub mod calls;
pub mod external;
pub mod image;
pub mod seeds;
pub mod subject;
