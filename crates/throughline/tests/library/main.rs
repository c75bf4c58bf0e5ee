//! The public interface.

mod endings;
mod failing;
mod handles;
mod inline_sparse;
mod just_opened;
mod like_std;
mod opening;
mod outcomes;
mod pack;
mod pack_into;
mod slashes;
mod status;
mod stopped;
mod types;
mod volume;
