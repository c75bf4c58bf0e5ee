//! One file per command: its arguments, its help and its code.

pub(crate) mod cat;
pub(crate) mod chattr;
pub(crate) mod chmod;
pub(crate) mod chown;
pub(crate) mod cp;
pub(crate) mod df;
pub(crate) mod du;
pub(crate) mod explain;
pub(crate) mod find;
pub(crate) mod generate;
pub(crate) mod getfacl;
pub(crate) mod getfattr;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod lab;
pub(crate) mod label;
pub(crate) mod ln;
pub(crate) mod ls;
pub(crate) mod lsattr;
pub(crate) mod mkdir;
pub(crate) mod mkfs;
pub(crate) mod mknod;
pub(crate) mod mount;
pub(crate) mod mv;
pub(crate) mod overlay;
pub(crate) mod pack;
pub(crate) mod readlink;
pub(crate) mod replay;
pub(crate) mod resize;
pub(crate) mod rm;
pub(crate) mod setfacl;
pub(crate) mod setfattr;
pub(crate) mod shell;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod tar;
pub(crate) mod touch;
pub(crate) mod tree;
pub(crate) mod truncate;
pub(crate) mod tune;
pub(crate) mod umount;

mod columns;
pub(crate) mod complete;
mod describe;
pub(crate) mod manual;
mod mounted;
mod typed;
mod within;

use crate::args::Command;
use crate::context::Context;
use crate::mount::fuse2fs;
use crate::problem::Failure;

/// Runs a command. Failures of single places are reported as they occur; an error that ends the command is
/// returned.
pub(crate) fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Info(args) => info::run(&args, context),
        Command::Ls(args) => ls::run(&args, context),
        Command::Tree(args) => tree::run(&args, context),
        Command::Stat(args) => stat::run(&args, context),
        Command::Cat(args) => cat::run(&args, context),
        Command::Cp(args) => cp::run(&args, context),
        Command::Rm(args) => rm::run(&args, context),
        Command::Mkdir(args) => mkdir::run(&args, context),
        Command::Mkfs(args) => mkfs::run(&args, context),
        Command::Pack(args) => pack::run(&args, context),
        Command::Tar(args) => tar::run(&args, context),
        Command::Mv(args) => mv::run(&args, context),
        Command::Ln(args) => ln::run(&args, context),
        Command::Readlink(args) => readlink::run(&args, context),
        Command::Chmod(args) => chmod::run(&args, context),
        Command::Chown(args) => chown::run(&args, context),
        Command::Find(args) => find::run(&args, context),
        Command::Shell(args) => shell::run(&args, context),
        Command::Mknod(args) => mknod::run(&args, context),
        Command::Getfattr(args) => getfattr::run(&args, context),
        Command::Setfattr(args) => setfattr::run(&args, context),
        Command::Getfacl(args) => getfacl::run(&args, context),
        Command::Setfacl(args) => setfacl::run(&args, context),
        Command::Lsattr(args) => lsattr::run(&args, context),
        Command::Chattr(args) => chattr::run(&args, context),
        Command::Label(args) => label::label(&args, context),
        Command::Uuid(args) => label::uuid(&args, context),
        Command::Touch(args) => touch::run(&args, context),
        Command::Truncate(args) => truncate::run(&args, context),
        Command::Df(args) => df::run(&args, context),
        Command::Du(args) => du::run(&args, context),
        Command::Tune(args) => tune::run(&args, context),
        Command::Overlay(args) => overlay::run(&args, context),
        Command::Replay(args) => replay::run(&args, context),
        Command::Resize(args) => resize::run(&args, context),
        Command::Mount(args) => mount::run(&args, context),
        Command::Umount(args) => umount::run(&args, context),
        Command::Status(args) => status::run(&args, context),
        Command::InstallFuse2fs(args) => install::names(&[fuse2fs::NAME], &args, context),
        Command::InstallMke2fs(args) => install::names(&mkfs::names::NAMES, &args, context),
        Command::InstallHelpers(args) => install::helpers(&args, context),
        Command::Explain(args) => explain::run(&args, context),
        Command::Lab => lab::run(context),
        Command::CompletePlace(args) => complete::run(&args, context),
        Command::Completions(args) => generate::completions(&args, context),
        Command::Man(args) => generate::man(&args, context),
    }
}
