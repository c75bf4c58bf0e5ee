//! `lab models`: lists the device models, or shows one with the source of every number.

use clap::Args;
use serde_json::json;
use throughline_face::command_line::JsonFlag;
use throughline_lab::models::{self, MODELS, Model};

use crate::context::Context;
use crate::problem::Failure;
use crate::text::quote;

/// Arguments of `lab models`.
#[derive(Args, Debug)]
pub(crate) struct ModelsArgs {
    /// Show this model with its limits, its timing law and the sources of its numbers; without it, all are
    /// listed
    name: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Lists them, or shows one.
pub(crate) fn run(args: &ModelsArgs, context: &mut Context) -> Result<(), Failure> {
    let json = context.json;
    let Some(name) = &args.name else {
        return list(json, context);
    };
    let model = models::find(name).ok_or_else(|| {
        let names: Vec<_> = MODELS.iter().map(|model| model.name).collect();
        Failure::Usage(format!(
            "no device model {}; there are: {}",
            quote(name),
            names.join(", ")
        ))
    })?;
    match json {
        true => context.out.json(&as_json(model)),
        false => show(model, context),
    }
}

fn list(json: bool, context: &mut Context) -> Result<(), Failure> {
    if json {
        return context
            .out
            .json(&MODELS.iter().map(as_json).collect::<Vec<_>>());
    }
    let width = MODELS.iter().map(|model| model.name.len()).max();
    let width = width.unwrap_or(0);
    MODELS.iter().try_for_each(|model| {
        let line = format!("{:<width$}  {}", model.name, model.about);
        context.out.line(line)
    })
}

fn show(model: &Model, context: &mut Context) -> Result<(), Failure> {
    context
        .out
        .line(format!("{}: {}", model.name, model.about))?;
    let width = model.figures.iter().map(|figure| figure.what.len()).max();
    let width = width.unwrap_or(0);
    for figure in model.figures {
        context
            .out
            .line(format!("  {:<width$}  {}", figure.what, figure.value))?;
        context
            .out
            .line(format!("  {:<width$}    {}", "", figure.source))?;
    }
    Ok(())
}

fn as_json(model: &Model) -> serde_json::Value {
    let figures: Vec<_> = model
        .figures
        .iter()
        .map(
            |figure| json!({ "what": figure.what, "value": figure.value, "source": figure.source }),
        )
        .collect();
    json!({
        "name": model.name,
        "about": model.about,
        "len_bytes": model.len_bytes,
        "bytes_per_s": model.law.bytes_per_s,
        "command_ns": model.law.command_ns,
        "latency_ns": model.law.latency_ns,
        "seek_ns": model.law.seek_ns,
        "flush_ns": model.law.flush_ns,
        "queue_depth": model.limits.queue_depth,
        "max_transfer_bytes": model.limits.max_transfer_bytes,
        "host_request_ns": model.host.request_ns,
        "host_page_in_ns": model.host.page_in_ns,
        "host_page_out_ns": model.host.page_out_ns,
        "host_page_fill_ns": model.host.page_fill_ns,
        "figures": figures,
    })
}
