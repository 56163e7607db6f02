//! A real Kubernetes on one machine for Trainyard's tests: built from Go modules, two real nodes in namespaces, operators from their own
//! manifests, images made on the spot, thousands of fake nodes, and faults on demand. `README.md` tells how to use it.
//!
//! In reading order: [`versions`] decides what runs, [`build`] makes it, [`space`] and [`guard`] are the ground it stands on,
//! [`components`] says how each program runs, [`cluster`] puts them together, [`faults`] breaks them, [`load`] fills them.
//!
//! Nothing of the program depends on this crate; only tests do.

pub mod build;
pub mod certs;
pub mod cgroups;
pub mod cluster;
pub mod command;
pub mod components;
pub mod error;
pub mod faults;
pub mod guard;
pub mod layout;
pub mod leftovers;
pub mod load;
pub mod machine;
pub mod network;
pub mod node;
pub mod profiles;
pub mod space;
pub mod versions;

pub use cluster::{Options, Testbed};
pub use error::{Error, Result};
pub use profiles::Profile;

use error::Doing;
use std::path::PathBuf;

/// The `testbed` program, which serves as guard and init: this process itself, or what Cargo built beside a test of any package.
pub fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TRAINYARD_TESTBED_PROGRAM") {
        return Ok(path.into());
    }
    let this = std::env::current_exe().doing("cannot find this program")?;
    let beside = this.ancestors().skip(1).take(2).map(|folder| folder.join("testbed"));
    beside.into_iter().find(|p| p.is_file()).ok_or_else(|| Error::Missing {
        what: "the program `testbed`".into(),
        help: "build it with: cargo build -p trainyard-testbed".into(),
    })
}
