//! `find`: walks an image and evaluates an expression for each file, as find(1) does.

mod action;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use clap::Args;
use throughline_forms::owner::Names;

use throughline_forms::find::{Expression, Limits, parse};

use super::within;
use crate::context::Context;
use crate::images::Access;
use crate::pattern::Purpose;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::walk::{At, Visitor, walk};

/// Help for expressions.
const EXPRESSION: &str = "\
Tests: -name, -iname, -path, -ipath PATTERN; -regex, -iregex PATTERN (matches the whole IMAGE:/path; \
    -regextype TYPE before it); -type f,d,l,p,s,b,c; -size [+-]N[cwbkMG]; -empty; -links, -inum [+-]N;
  -mtime, -atime, -ctime [+-]DAYS; -mmin, -amin, -cmin [+-]MINUTES; -newer IMAGE:/FILE; -user, -group NAME; \
    -uid, -gid [+-]N;
  -perm MODE, -perm -MODE (all of them), -perm /MODE (any of them); -true, -false
Operators: ( … ), ! or -not, -a or -and (or nothing), -o or -or
Depth: -mindepth N, -maxdepth N, -depth
Actions: -print (the default), -print0, -printf FORMAT, -ls, -delete, -prune, -quit,
  -exec COMMAND… {} \\; and -exec COMMAND… {} +: run a throughline command for each file, \
    or once for all files
Formats: %p %f %h %P %H %s %k %b %m %M %u %U %g %G %i %n %l %d %y %Y, %a %c %t and %Ak %Ck %Tk %Bk \
    (k: @ or a letter of date), \\n \\t \\0
Files are shown as IMAGE:/path, which other commands accept.";

/// Arguments of `find`.
#[derive(Args, Debug)]
#[command(after_long_help = EXPRESSION)]
pub(crate) struct FindArgs {
    /// Paths in images to search, then tests and actions
    #[arg(
        required = true,
        value_name = "IMAGE:/PATH... [EXPRESSION]",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// The state of a walk.
struct Search<'a> {
    expression: &'a Expression,
    limits: Limits,
    now: SystemTime,
    names: Names,
    /// Set when `-quit` was executed.
    ended: bool,
    /// Commands that take many files, with the files found so far.
    gathered: Vec<(Vec<OsString>, Vec<Place>)>,
}

/// Walks each place.
pub(crate) fn run(args: &FindArgs, context: &mut Context) -> Result<(), Failure> {
    let begins = |word: &OsString| {
        let word = word.as_bytes();
        word.len() > 1 && word[0] == b'-' || word == b"!" || word == b"("
    };
    let first = args.words.iter().position(begins);
    let (places, words) = args.words.split_at(first.unwrap_or(args.words.len()));
    let mut places: Vec<Place> = places.iter().map(|place| Place::parse(place)).collect();
    // In a shell, as in the other listings.
    let here = Place::parse(OsStr::new("."));
    if places.is_empty() && matches!(here, Place::Image { .. }) {
        places.push(here);
    }
    if places.is_empty() {
        return Err(Failure::Usage(
            "the paths come first: find IMAGE:/path …".into(),
        ));
    }
    let (mut expression, limits) = parse(words, &within::check).map_err(Failure::Usage)?;
    if !expression.acts() {
        expression = Expression::and(expression, Expression::Print);
    }
    let purpose = match limits.writes {
        true => Purpose::Change { glob: false },
        false => Purpose::Read,
    };
    let access = purpose.access();
    let places = context.expand(&places, purpose)?;
    for place in &places {
        context.open(place, access)?;
    }
    // Look up the times of the reference files.
    expression.resolve(&mut |file| {
        let place = &Place::parse(file);
        if !matches!(place, Place::Image { .. }) {
            return Err(Failure::Usage(format!("-newer {place}: write IMAGE:/path")));
        }
        let opened = context.open(place, Access::Read)?;
        let meta = opened.volume.metadata(&opened.path);
        Ok(meta.doing(|| format!("cannot access {place}"))?.modified())
    })?;
    let mut search = Search {
        expression: &expression,
        limits,
        now: SystemTime::now(),
        names: Names::of_host(false),
        ended: false,
        gathered: Vec::new(),
    };
    context.each(&places, |context, place| {
        if search.ended {
            return Ok(());
        }
        let opened = context.open(place, access)?;
        walk(context, &opened, false, &mut search)
    })?;
    search.run_gathered(context)
}

impl Visitor for Search<'_> {
    fn before(&mut self, context: &mut Context, at: &At<'_>) -> Result<bool, Failure> {
        let is_shown = at.depth >= self.limits.least_depth && !self.limits.depth_first;
        let pruned = is_shown && self.act(context, at)?;
        Ok(!pruned && !self.ended && at.depth < self.limits.most_depth)
    }

    fn after(&mut self, context: &mut Context, at: &At<'_>) -> Result<(), Failure> {
        let is_shown = at.depth >= self.limits.least_depth && self.limits.depth_first;
        if is_shown && !self.ended {
            self.act(context, at)?;
        }
        Ok(())
    }

    fn ended(&self) -> bool {
        self.ended
    }
}
