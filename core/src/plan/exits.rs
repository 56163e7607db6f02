//! What an exit status means, by the conventions of shells, containers and kernels.

use crate::model::Exit;

/// Signals that end training processes, with what usually sends them.
const SIGNALS: [(i32, &str, &str); 13] = [
    (1, "SIGHUP", "its terminal or session went away"),
    (2, "SIGINT", "it was interrupted, as by Ctrl-C"),
    (3, "SIGQUIT", "it was asked to quit with a core dump"),
    (4, "SIGILL", "it ran an instruction that this processor does not have"),
    (
        6,
        "SIGABRT",
        "it aborted itself, as a failed assertion or an uncaught C++ exception does",
    ),
    (
        7,
        "SIGBUS",
        "it touched memory that could not be provided; a full /dev/shm does that",
    ),
    (8, "SIGFPE", "it divided by zero or overflowed in arithmetic"),
    (9, "SIGKILL", "something killed it at once; it could not react"),
    (
        11,
        "SIGSEGV",
        "it touched memory that is not its own, a fault in native code",
    ),
    (13, "SIGPIPE", "it wrote to a pipe or socket whose reader was gone"),
    (15, "SIGTERM", "it was asked to end"),
    (24, "SIGXCPU", "it used up its limit of processor time"),
    (25, "SIGXFSZ", "it wrote a file beyond the size limit"),
];

/// The signal behind an exit, whether the kernel told it or a shell's 128 + signal did.
pub fn signal(exit: &Exit) -> Option<i32> {
    exit.signal.or_else(|| {
        // Codes above 128 that name no known signal are a program's own.
        let signal = exit.code? - 128;
        SIGNALS.iter().any(|&(number, ..)| number == signal).then_some(signal)
    })
}

/// The status as one number, as shells and containers write it: the exit code, or 128 + signal.
pub fn code(exit: &Exit) -> Option<i32> {
    exit.code.or(exit.signal.map(|signal| 128 + signal))
}

/// In three words: "exit code 1", "SIGSEGV (signal 11)", "out of memory".
pub fn brief(exit: &Exit) -> String {
    match (exit.code, exit.signal) {
        _ if exit.oom => "out of memory".to_owned(),
        _ if exit.unknown => "an exit that nobody saw".to_owned(),
        (_, Some(signal)) => name(signal),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => "an exit that nobody saw".to_owned(),
    }
}

/// In a sentence's worth: "exit code 139: SIGSEGV (signal 11), it touched memory that is not its own ...".
pub fn in_words(exit: &Exit) -> String {
    if exit.oom {
        return "out of memory: the kernel killed it for using more than its limit or than the machine had".to_owned();
    }
    if exit.unknown || (exit.code.is_none() && exit.signal.is_none()) {
        return "exit unknown: what watched it was gone before it ended, so nobody saw its status".to_owned();
    }
    let asked = if exit.stop_requested {
        ", after it was asked to stop"
    } else {
        ""
    };
    let meaning = signal(exit).map(|number| match SIGNALS.iter().find(|&&(known, ..)| known == number) {
        Some((.., meaning)) if !exit.stop_requested => format!("{}, {meaning}", name(number)),
        _ => name(number),
    });
    match (exit.code, meaning) {
        (Some(0), _) => format!("exit code 0{asked}"),
        (Some(code), Some(meaning)) => format!("exit code {code}: {meaning}{asked}"),
        (Some(code), None) => match conventional(code) {
            Some(meaning) => format!("exit code {code}: {meaning}{asked}"),
            None => format!("exit code {code}{asked}"),
        },
        (None, Some(meaning)) => format!("{meaning}{asked}"),
        (None, None) => format!("exit unknown{asked}"),
    }
}

/// `SIGSEGV (signal 11)`, or `signal 40` for one without a name here.
fn name(signal: i32) -> String {
    match SIGNALS.iter().find(|&&(number, ..)| number == signal) {
        Some((_, name, _)) => format!("{name} (signal {signal})"),
        None => format!("signal {signal}"),
    }
}

fn conventional(code: i32) -> Option<&'static str> {
    match code {
        2 => Some("by convention a wrong command line or a missing script"),
        126 => Some("by convention the program may not be executed"),
        127 => Some("by convention the program was not found"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::DateTime;

    fn exit(code: Option<i32>, signal: Option<i32>) -> Exit {
        Exit {
            at: DateTime::UNIX_EPOCH,
            code,
            signal,
            oom: false,
            unknown: false,
            stop_requested: false,
        }
    }

    #[test]
    fn a_signal_reads_the_same_from_the_kernel_and_from_a_shell() {
        for (code, number, word) in [
            (139, 11, "SIGSEGV"),
            (137, 9, "SIGKILL"),
            (143, 15, "SIGTERM"),
            (135, 7, "SIGBUS"),
        ] {
            let shell = in_words(&exit(Some(code), None));
            let kernel = in_words(&exit(None, Some(number)));
            assert!(shell.ends_with(&kernel), "{shell} / {kernel}");
            assert!(kernel.starts_with(word), "{kernel}");
            assert_eq!(super::code(&exit(None, Some(number))), Some(code));
        }
    }

    #[test]
    fn what_is_not_known_is_said_and_not_guessed() {
        assert!(
            in_words(&Exit {
                unknown: true,
                ..exit(None, None)
            })
            .starts_with("exit unknown")
        );
        assert!(
            in_words(&Exit {
                oom: true,
                ..exit(None, Some(9))
            })
            .starts_with("out of memory")
        );
        assert_eq!(in_words(&exit(Some(200), None)), "exit code 200");
        assert_eq!(in_words(&exit(Some(1), None)), "exit code 1");
        assert_eq!(in_words(&exit(None, Some(40))), "signal 40");
        assert_eq!(brief(&exit(Some(3), None)), "exit code 3");
    }

    #[test]
    fn a_process_that_we_stopped_is_told_as_such() {
        let stopped = Exit {
            stop_requested: true,
            ..exit(None, Some(15))
        };
        assert_eq!(in_words(&stopped), "SIGTERM (signal 15), after it was asked to stop");
    }
}
