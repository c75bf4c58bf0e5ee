//! File data and names on volumes.

mod layers;
mod mapping;
mod names;
