//! The program. Until the command line is wired, only the shim.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == "shim" => trainyard::shim::run(args),
        _ => ExitCode::from(2),
    }
}
