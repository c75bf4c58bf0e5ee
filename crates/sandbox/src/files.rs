//! The landlock ruleset: what of the file system may be opened.
//!
//! A process under landlock can neither mount nor unmount, and cannot read or change the memory of a process
//! outside. With ABI 6 (Linux 6.12), it cannot signal one either, nor reach its abstract sockets.
//!
//! The rights asked for are those of ABI 6; an older kernel enforces those that it knows. Where landlock has
//! no right for an operation (permissions, owners and attributes of files by their path), `calls.rs` refuses
//! it.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, RulesetAttr,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};

use crate::Files;

/// The newest ABI whose rights are asked for.
const RIGHTS: ABI = ABI::V6;
/// All up to it, the newest first.
const ABIS: [ABI; 6] = [RIGHTS, ABI::V5, ABI::V4, ABI::V3, ABI::V2, ABI::V1];

/// A ruleset of the kernel.
pub(crate) struct Ruleset {
    pub(crate) fd: OwnedFd,
    /// The ABI whose rights it has.
    pub(crate) abi: u8,
}

/// A ruleset that allows `allowed`; without `network`, no TCP.
///
/// # Errors
/// The reason why there is none.
pub(crate) fn ruleset(allowed: &Files, network: bool) -> Result<Ruleset, String> {
    match build(allowed, network) {
        Ok(Some(fd)) => Ok(Ruleset {
            fd,
            abi: abi_of_kernel(),
        }),
        Ok(None) => Err("this kernel does not have it, or it is not enabled".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn build(allowed: &Files, network: bool) -> Result<Option<OwnedFd>, RulesetError> {
    let mut ports = BitFlags::from(AccessNet::BindTcp);
    if !network {
        ports |= AccessNet::ConnectTcp;
    }
    let ruleset = landlock::Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RIGHTS))?
        .handle_access(ports)?
        .scope(Scope::from_all(RIGHTS))?
        .create()?
        .add_rules(path_beneath_rules(
            &allowed.read,
            AccessFs::ReadFile | AccessFs::ReadDir,
        ))?
        .add_rules(path_beneath_rules(
            &allowed.write,
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        ))?
        .add_rules(path_beneath_rules(&allowed.below, below()))?;
    Ok(ruleset.into())
}

/// The newest of [`ABIS`] that this kernel has; 0: none.
fn abi_of_kernel() -> u8 {
    let has = |abi: &ABI| {
        let whole = landlock::Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(*abi))
            // Earlier ABIs have none of these, and no set may be empty.
            .and_then(|ruleset| match *abi {
                ABI::V4 | ABI::V5 | ABI::V6 => ruleset.handle_access(AccessNet::from_all(*abi)),
                _ => Ok(ruleset),
            })
            .and_then(|ruleset| match *abi {
                ABI::V6 => ruleset.scope(Scope::from_all(*abi)),
                _ => Ok(ruleset),
            });
        whole.is_ok()
    };
    ABIS.into_iter().find(has).map_or(0, |abi| abi as u8)
}

/// Everything with regular files and directories.
fn below() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
        | AccessFs::Refer
}
