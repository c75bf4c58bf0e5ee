//! The block layer: bios, limits, the builder that splits, the plug that merges, accounting and events.
#![forbid(unsafe_code)]
