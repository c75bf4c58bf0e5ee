//! Runs one of our commands in this process and traces the events of its engine.

use std::sync::Arc;

use throughline_explain::ours::Watch;

use super::{ExplainArgs, Seen};
use crate::args::{Cli, Command};
use crate::context::{Context, Engine, Globals};
use crate::problem::Failure;
use crate::{commands, conclude, logging};

/// Runs the command. Returns `None` if only its help was printed.
pub(super) fn run(args: &ExplainArgs, context: &mut Context) -> Result<Option<Seen>, Failure> {
    let words = std::iter::once("throughline".into()).chain(args.command.iter().cloned());
    let inner = match Cli::try_parse_from(words) {
        Ok(inner) => inner,
        Err(error) => {
            // Standard output or standard error may be closed.
            let _ = error.print();
            if error.exit_code() == 0 {
                return Ok(None);
            }
            context
                .complaints
                .note("for another program's I/O: throughline explain --kernel -- COMMAND");
            context.exit_bits = u8::try_from(error.exit_code()).unwrap_or(2);
            return Err(Failure::Reported);
        }
    };
    if !is_watched(&inner.command) {
        return Err(Failure::Usage(
            "explain traces commands that do I/O in their own process, such as cp, mount and 'lab run'; for \
             an existing mount use 'throughline status DIR', and for other programs 'explain --kernel'"
                .into(),
        ));
    }
    let globals = over(inner.globals, &context.globals);
    if context.globals.log.is_none()
        && let Some(level) = globals.log
    {
        logging::start(level, globals.log_file.as_deref())?;
    }
    let json = inner.json || inner.command.json();
    let watch = Arc::new(Watch::new());
    let mut explained = Context::new(globals, json);
    explained.images.watch = Some(Arc::clone(&watch));
    let result = commands::run(inner.command, &mut explained);
    let code = conclude(result, &mut explained);
    Ok(Some(Seen {
        left_out: watch.left_out(),
        explained: watch.finish(),
        code,
    }))
}

/// Whether our engine does the command's I/O in this process.
fn is_watched(command: &Command) -> bool {
    match command {
        Command::Info(_)
        | Command::Ls(_)
        | Command::Tree(_)
        | Command::Stat(_)
        | Command::Cat(_)
        | Command::Cp(_)
        | Command::Rm(_)
        | Command::Mkdir(_)
        | Command::Mv(_)
        | Command::Ln(_)
        | Command::Readlink(_)
        | Command::Chmod(_)
        | Command::Chown(_)
        | Command::Find(_)
        | Command::Mknod(_)
        | Command::Getfattr(_)
        | Command::Setfattr(_)
        | Command::Getfacl(_)
        | Command::Setfacl(_)
        | Command::Lsattr(_)
        | Command::Chattr(_)
        | Command::Label(_)
        | Command::Uuid(_)
        | Command::Shell(_)
        | Command::Touch(_)
        | Command::Truncate(_)
        | Command::Df(_)
        | Command::Du(_)
        | Command::Tune(_)
        | Command::Replay(_)
        | Command::Overlay(_)
        | Command::Tar(_)
        | Command::Mount(_) => true,
        Command::Lab(args) => args.measures(),
        Command::Umount(_)
        | Command::Status(_)
        | Command::InstallFuse2fs(_)
        | Command::InstallMke2fs(_)
        | Command::Mkfs(_)
        | Command::Pack(_)
        | Command::Resize(_)
        | Command::InstallHelpers(_)
        | Command::Explain(_)
        | Command::CompletePlace(_)
        | Command::Completions(_)
        | Command::Man(_) => false,
    }
}

/// The options after the command's name. Those before the name are the defaults.
fn over(inner: Globals, outer: &Globals) -> Globals {
    let Globals {
        offset,
        image_format,
        backing,
        overlay,
        unwanted: _,
        journal_device,
        engine,
        direct,
        host_cache,
        cache,
        dirty_limit,
        dirty_background,
        readahead,
        bio_target,
        commit,
        no_replay,
        no_sandbox,
        log,
        log_file,
        quiet,
    } = inner;
    Globals {
        offset: if offset == 0 { outer.offset } else { offset },
        image_format: image_format.or(outer.image_format),
        backing: match backing.is_empty() {
            true => outer.backing.clone(),
            false => backing,
        },
        overlay: overlay.or_else(|| outer.overlay.clone()),
        unwanted: Arc::clone(&outer.unwanted),
        journal_device: journal_device.or_else(|| outer.journal_device.clone()),
        engine: if engine == Engine::Auto {
            outer.engine
        } else {
            engine
        },
        direct: direct || outer.direct,
        host_cache: host_cache || outer.host_cache,
        cache: cache.or(outer.cache),
        dirty_limit: dirty_limit.or(outer.dirty_limit),
        dirty_background: dirty_background.or(outer.dirty_background),
        readahead: readahead.or(outer.readahead),
        bio_target: bio_target.or(outer.bio_target),
        commit: commit.or(outer.commit),
        no_replay: no_replay || outer.no_replay,
        no_sandbox: no_sandbox || outer.no_sandbox,
        log: log.or(outer.log),
        log_file: log_file.or_else(|| outer.log_file.clone()),
        quiet: quiet || outer.quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_hold_unless_there_are_others_behind() {
        let outer = Globals {
            direct: true,
            cache: Some(1),
            offset: 512,
            ..Globals::default()
        };
        let inner = Globals {
            cache: Some(2),
            engine: Engine::Threads,
            ..Globals::default()
        };
        let all = over(inner, &outer);
        assert_eq!((all.direct, all.cache, all.offset), (true, Some(2), 512));
        assert_eq!(all.engine, Engine::Threads);
    }
}
