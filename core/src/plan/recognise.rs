//! What a program's last lines say about its end.
//!
//! One table of known lines ([`KNOWN`]), and one rule for Python's tracebacks, which name their fault in the first
//! line that is not indented. What was found is weighed: a known fault of the rank's own, then an exception that
//! nothing marks as a lost peer, then the loss of a peer, then what says nothing about whose fault it was.

use std::{borrow::Cow, sync::OnceLock};

use regex::{Regex, RegexSet};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attempt::Evidence::{self, Cause, Consequence, Silent};

/// A line that was recognised, with what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recognised {
    /// A stable code, such as `python_exception`.
    pub code: String,
    pub evidence: Evidence,
    /// The line as it was printed, without colours, cut to 500 characters.
    pub line: String,
    /// What it means, in words.
    pub meaning: String,
    /// What a person can do.
    pub next: String,
}

/// No more lines than these are looked at, the last ones.
const LOOKED_AT: usize = 400;

/// The most telling line among a replica's last lines (oldest first), if any is known.
pub fn recognise(lines: &[&str]) -> Option<Recognised> {
    let lines = &lines[lines.len().saturating_sub(LOOKED_AT)..];
    let lines: Vec<Cow<'_, str>> = lines.iter().map(|line| plain(line)).collect();
    let known: Vec<Option<&Known>> = lines.iter().map(|line| look_up(line)).collect();
    let last = |evidence: Evidence| {
        let place = known
            .iter()
            .rposition(|found| found.is_some_and(|found| found.evidence == evidence))?;
        Some(known[place]?.told(&lines[place]))
    };
    last(Cause)
        .or_else(|| own_exception(&lines, &known))
        .or_else(|| last(Consequence))
        .or_else(|| last(Silent))
}

/// Only the weight of [`recognise`]; `Silent` when nothing is known.
pub fn weigh(lines: &[&str]) -> Evidence {
    recognise(lines).map_or(Silent, |found| found.evidence)
}

/// The last exception of a Python traceback, unless it or one that it is chained to speaks of a lost peer.
fn own_exception(lines: &[Cow<'_, str>], known: &[Option<&Known>]) -> Option<Recognised> {
    let mut in_traceback = false;
    let mut chained = false;
    // The exception that a traceback or a chain of them ends with so far, and whether the chain speaks of a peer.
    let mut chain: Option<(usize, bool)> = None;
    let mut own = None;
    for (place, line) in lines.iter().enumerate() {
        if line.starts_with("Traceback (most recent call last)") {
            in_traceback = true;
        } else if line.starts_with("During handling of the above exception")
            || line.starts_with("The above exception was the direct cause")
        {
            chained = true;
        } else if in_traceback && !line.is_empty() && !line.starts_with([' ', '\t']) {
            let before = chain.filter(|_| chained).is_some_and(|(_, peer)| peer);
            let peer = before || known[place].is_some_and(|found| found.evidence != Cause);
            if chained && peer {
                own = None;
            }
            if !peer {
                own = Some(place);
            }
            chain = Some((place, peer));
            (in_traceback, chained) = (false, false);
        }
    }
    own.map(|place| EXCEPTION.told(&lines[place]))
}

const EXCEPTION: Known = Known {
    code: "python_exception",
    evidence: Cause,
    pattern: "",
    meaning: "The program raised an exception that nothing caught.",
    next: "Read the traceback in this rank's log; the lines above its last one name the file and line.",
};

/// A kind of line, what it says, and what can be done.
struct Known {
    code: &'static str,
    evidence: Evidence,
    pattern: &'static str,
    meaning: &'static str,
    next: &'static str,
}

impl Known {
    fn told(&self, line: &str) -> Recognised {
        Recognised {
            code: self.code.to_owned(),
            evidence: self.evidence,
            // Without NUL, which no JSON column of Postgres takes.
            line: line
                .chars()
                .take(500)
                .map(|letter| if letter == '\0' { '\u{2400}' } else { letter })
                .collect(),
            meaning: self.meaning.to_owned(),
            next: self.next.to_owned(),
        }
    }
}

/// The first entry of the table that a line matches.
fn look_up(line: &str) -> Option<&'static Known> {
    static SET: OnceLock<RegexSet> = OnceLock::new();
    // Every pattern is a literal of this file, and a test compiles them.
    let set = SET.get_or_init(|| RegexSet::new(KNOWN.iter().map(|known| known.pattern)).expect("patterns are valid"));
    set.matches(line).into_iter().next().map(|place| &KNOWN[place])
}

/// Without colours and without what torch and mpirun put in front of each line; at most 4,000 bytes are looked at.
fn plain(line: &str) -> Cow<'_, str> {
    static COLOUR: OnceLock<Regex> = OnceLock::new();
    static PREFIX: OnceLock<Regex> = OnceLock::new();
    // Both are literals, compiled by every test of this file.
    let colour = COLOUR.get_or_init(|| Regex::new(r"\x1b\[[0-9;]*[A-Za-z]").expect("the pattern is valid"));
    let prefix = PREFIX.get_or_init(|| {
        Regex::new(r"^(?:\[\d+,\d+\]<std(?:out|err)>: ?|\[(?:default|rank|worker)\d+\]: ?)+")
            .expect("the pattern is valid")
    });
    let mut end = line.len().min(4_000);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    let line = match colour.replace_all(line[..end].trim_end(), "") {
        Cow::Borrowed(line) => return prefix.replace(line, ""),
        Cow::Owned(line) => line,
    };
    Cow::Owned(prefix.replace(&line, "").into_owned())
}

/// Specific before general: the first match of a line counts.
#[rustfmt::skip]
const KNOWN: &[Known] = &[
    // Faults of the rank's own.
    Known { code: "gpu_out_of_memory", evidence: Cause,
        pattern: r"(?:CUDA|HIP) out of memory|torch(?:\.cuda)?\.OutOfMemoryError|(?:CUDA|HIP) error: out of memory|RESOURCE_EXHAUSTED: Out of memory",
        meaning: "The GPU's memory was not enough.",
        next: "Use a smaller batch, gradient accumulation or checkpointing of activations, or a GPU with more memory." },
    Known { code: "host_out_of_memory", evidence: Cause,
        pattern: r"^MemoryError\b|Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator: (?:can't|not enough)|[Oo]ut of memory: Killed process|oom-kill",
        meaning: "The machine's memory, or the replica's limit of it, was not enough.",
        next: "Ask for more memory (resources.memory), or load less at once; data loader workers each hold a copy." },
    Known { code: "shared_memory", evidence: Cause,
        pattern: r"insufficient shared memory|DataLoader worker \(pid.*\) is killed by signal: Bus error|unable to (?:mmap|write to file|open shared memory)|Bus error",
        meaning: "Shared memory (/dev/shm) was not enough for the data loader.",
        next: "Use fewer data loader workers, or give the replica a larger /dev/shm." },
    Known { code: "no_space", evidence: Cause,
        pattern: r"No space left on device|\[Errno 28\]|Disk quota exceeded|\[Errno 122\]",
        meaning: "A disk or a quota was full.",
        next: "Free space where it writes (checkpoints, caches, /tmp), or write to a larger volume." },
    Known { code: "missing_module", evidence: Cause,
        pattern: r"ModuleNotFoundError: |ImportError: |cannot open shared object file",
        meaning: "A module or library that the program needs is not installed where it runs.",
        next: "Install it in the environment or image that the replica uses; the line names it." },
    Known { code: "gpu_missing", evidence: Cause,
        pattern: r"no CUDA-capable device|Found no NVIDIA driver|Torch not compiled with CUDA enabled|CUDA driver version is insufficient|No CUDA GPUs are available|invalid device ordinal",
        meaning: "The program wanted a GPU that it could not use.",
        next: "Ask for GPUs (resources.gpus) and check that the driver fits the framework's build." },
    Known { code: "gpu_fault", evidence: Cause,
        pattern: r"illegal memory access|device-side assert|uncorrectable ECC|unspecified launch failure|CUBLAS_STATUS_|CUDNN_STATUS_|NVRM: Xid|ncclUnhandledCudaError",
        meaning: "A GPU reported a fault: a wrong index in a kernel, or failing hardware.",
        next: "Run once with CUDA_LAUNCH_BLOCKING=1; if another program fails on the same GPU too, take the GPU out of service." },
    Known { code: "address_in_use", evidence: Cause,
        pattern: r"Address already in use|EADDRINUSE|\[Errno 98\]",
        meaning: "The port that it wanted to listen on was taken.",
        next: "Use the MASTER_PORT that Trainyard sets instead of a fixed one." },
    Known { code: "file_missing", evidence: Cause,
        pattern: r"FileNotFoundError: |can't open file |NotADirectoryError: ",
        meaning: "A file or folder was not where the program looked.",
        next: "Check the path, the working folder and the volumes; the line names the path." },
    Known { code: "permission", evidence: Cause,
        pattern: r"PermissionError: |\[Errno 13\]",
        meaning: "The account that replicas run as may not use a file.",
        next: "Make the path readable or writable for that account; the line names the path." },
    Known { code: "too_many_files", evidence: Cause,
        pattern: r"Too many open files|\[Errno 24\]",
        meaning: "The limit of open files was reached.",
        next: "Close files, use fewer data loader workers, or raise the limit." },
    Known { code: "credentials", evidence: Cause,
        pattern: r"\b40[13] Client Error|GatedRepoError|InvalidAccessKeyId|NoCredentialsError|ExpiredToken|AccessDenied",
        meaning: "A service refused the credentials, or there were none.",
        next: "Put a valid token in a secret and name it with secretRef." },
    Known { code: "name_resolution", evidence: Cause,
        pattern: r"[Nn]ame resolution|Name or service not known|getaddrinfo failed|nodename nor servname",
        meaning: "A host's name could not be resolved.",
        next: "Check the name, and whether the node may reach a name server." },
    Known { code: "command_line", evidence: Cause,
        pattern: r"error: (?:unrecognized arguments|the following arguments are required|argument )|error: invalid choice",
        meaning: "The program refused its arguments.",
        next: "Correct command and args in the document." },
    Known { code: "syntax", evidence: Cause,
        pattern: r"^(?:SyntaxError|IndentationError|TabError): ",
        meaning: "The program's source does not parse.",
        next: "Correct the file that the lines above name." },
    Known { code: "not_a_number", evidence: Cause,
        pattern: r"(?i)\bloss (?:is|became|=) ?(?:nan|inf)\b|found (?:nan|inf) in ",
        meaning: "The loss became infinite or not a number.",
        next: "Lower the learning rate, clip gradients, or resume from an earlier checkpoint." },
    Known { code: "mpi_slots", evidence: Cause,
        pattern: r"not enough slots available",
        meaning: "mpirun was asked for more processes than it has slots.",
        next: "Start as many processes as the launcher has cores, or let mpirun oversubscribe." },
    Known { code: "mpi_rank", evidence: Cause,
        pattern: r"mpirun (?:noticed that process rank \d+|detected that one or more processes exited with non-zero)|prterun noticed that|MPI_ABORT was invoked on rank \d+",
        meaning: "mpirun says which of its ranks ended the run.",
        next: "Read the output that is tagged with that rank." },
    Known { code: "native_crash", evidence: Cause,
        pattern: r"Segmentation fault|Fatal Python error|thread '.*' panicked at|^panic: |double free or corruption|Assertion .* failed",
        meaning: "Native code crashed.",
        next: "Set PYTHONFAULTHANDLER=1 to see the Python frames at the crash." },

    // The loss of a peer.
    Known { code: "connection_reset", evidence: Consequence,
        pattern: r"[Cc]onnection reset|ECONNRESET|\[Errno 104\]",
        meaning: "A peer closed the connection: another rank had ended.",
        next: "Look at the rank that failed first." },
    Known { code: "connection_closed", evidence: Consequence,
        pattern: r"[Cc]onnection (?:was )?closed by (?:remote )?peer|Broken pipe|\[Errno 32\]|[Ss]ocket closed|failed to recv, got 0 bytes|Transport endpoint is not connected",
        meaning: "A peer closed the connection: another rank had ended.",
        next: "Look at the rank that failed first." },
    Known { code: "connection_refused", evidence: Consequence,
        pattern: r"[Cc]onnection refused|ECONNREFUSED|\[Errno 111\]|client socket has (?:failed to connect|timed out)|DistStoreError|DistNetworkError|RendezvousConnectionError|RendezvousTimeoutError",
        meaning: "The rendezvous was not there: rank 0 had not started or had ended.",
        next: "Look at rank 0's log." },
    Known { code: "nccl_remote", evidence: Consequence,
        pattern: r"ncclRemoteError|remote process exited or there was a network error|ncclInProgress.*abort|NCCL communicator was aborted",
        meaning: "NCCL lost a peer.",
        next: "Look at the rank that failed first; if none did, at the network between the nodes." },
    Known { code: "collective_timeout", evidence: Consequence,
        pattern: r"Watchdog caught collective operation timeout|ProcessGroup\w+.*[Tt]ime(?:d )?out|Timed out waiting \d+ ?ms for (?:recv|send)|Application timeout caused pair closure|HeartbeatMonitor",
        meaning: "A collective operation timed out waiting for another rank.",
        next: "Look for the rank that stopped making steps." },
    Known { code: "coordinator_lost", evidence: Consequence,
        pattern: r"JAX distributed service detected fatal errors|[Cc]oordination ?[Ss]ervice.*(?:[Uu]navailable|UNAVAILABLE|error|lost)|UNAVAILABLE: ",
        meaning: "The coordinator or a peer went away.",
        next: "Look at the rank that failed first." },
    Known { code: "gloo", evidence: Consequence,
        pattern: r"gloo/transport/|\[enforce fail at .*gloo",
        meaning: "Gloo lost a peer.",
        next: "Look at the rank that failed first." },
    Known { code: "interrupted", evidence: Consequence,
        pattern: r"^KeyboardInterrupt\b|SignalException: |[Rr]eceived (?:SIGTERM|SIGINT|.*death signal)|^Terminated$",
        meaning: "It was told to end.",
        next: "Look at who stopped it: the job's events say." },

    // What says nothing about whose fault it was.
    Known { code: "child_failed", evidence: Silent,
        pattern: r"ChildFailedError",
        meaning: "A process that torchrun had started failed.",
        next: "Read that process's own traceback further up." },
    Known { code: "nccl_system", evidence: Silent,
        pattern: r"ncclSystemError|ncclInternalError|NCCL WARN|NCCL error",
        meaning: "NCCL reported an error of the network, the driver or a peer.",
        next: "Run once with NCCL_DEBUG=INFO; look at the rank that failed first." },
    Known { code: "killed", evidence: Silent,
        pattern: r"^Killed$|\bKilled\s*$",
        meaning: "A child was killed; the kernel's out-of-memory killer often does that.",
        next: "Compare its memory with its limit." },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn code(lines: &[&str]) -> Option<String> {
        recognise(lines).map(|found| found.code)
    }

    #[test]
    fn every_known_line_is_recognised_with_its_weight() {
        for (line, expected, evidence) in [
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
                "gpu_out_of_memory",
                Cause,
            ),
            ("MemoryError: Unable to allocate 7.45 GiB", "host_out_of_memory", Cause),
            (
                "OSError: [Errno 28] No space left on device: '/ckpt/120'",
                "no_space",
                Cause,
            ),
            (
                "ModuleNotFoundError: No module named 'transformers'",
                "missing_module",
                Cause,
            ),
            (
                "RuntimeError: CUDA error: an illegal memory access was encountered",
                "gpu_fault",
                Cause,
            ),
            ("OSError: [Errno 98] Address already in use", "address_in_use", Cause),
            (
                "python3: can't open file '/job/train.py': [Errno 2] No such file or directory",
                "file_missing",
                Cause,
            ),
            (
                "train.py: error: unrecognized arguments: --epoch 3",
                "command_line",
                Cause,
            ),
            ("loss is nan, stopping training", "not_a_number", Cause),
            (
                "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
                "shared_memory",
                Cause,
            ),
            (
                "mpirun noticed that process rank 2 with PID 0 on node a exited on signal 9 (Killed).",
                "mpi_rank",
                Cause,
            ),
            (
                "ConnectionResetError: [Errno 104] Connection reset by peer",
                "connection_reset",
                Consequence,
            ),
            (
                "RuntimeError: [/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:31216",
                "connection_closed",
                Consequence,
            ),
            (
                "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
                "collective_timeout",
                Consequence,
            ),
            (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, ncclRemoteError",
                "nccl_remote",
                Consequence,
            ),
            (
                "[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)",
                "collective_timeout",
                Consequence,
            ),
            (
                "BrokenPipeError: [Errno 32] Broken pipe",
                "connection_closed",
                Consequence,
            ),
            ("KeyboardInterrupt", "interrupted", Consequence),
            (
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
                "child_failed",
                Silent,
            ),
        ] {
            let found = recognise(&["step=1 loss=0.5", line]).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((found.code.as_str(), found.evidence), (expected, evidence), "{line}");
        }
    }

    #[test]
    fn ordinary_output_means_nothing() {
        for line in [
            "step=120 loss=0.31",
            "epoch 3 done",
            "saved checkpoint",
            "",
            "killed 3 outliers in the data",
            "\u{0}\u{fffd}",
        ] {
            assert_eq!(code(&[line]), None, "{line}");
        }
        assert_eq!(weigh(&[]), Silent);
    }

    #[test]
    fn an_exception_is_the_line_that_ends_the_traceback() {
        let lines = [
            "[rank3]: Traceback (most recent call last):",
            "[rank3]:   File \"/job/train.py\", line 40, in <module>",
            "[rank3]:     raise ValueError(\"bad shard 17\")",
            "\u{1b}[31m[rank3]: ValueError: bad shard 17\u{1b}[0m",
            "cleaning up",
        ];
        let found = recognise(&lines).unwrap();
        assert_eq!(found.code, "python_exception");
        assert_eq!(found.line, "ValueError: bad shard 17");
        assert_eq!(found.evidence, Cause);
    }

    #[test]
    fn an_exception_that_speaks_of_a_peer_is_a_consequence_even_when_another_is_raised_on_top() {
        let lines = [
            "Traceback (most recent call last):",
            "  File \"train.py\", line 4, in <module>",
            "ConnectionResetError: [Errno 104] Connection reset by peer",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            "  File \"train.py\", line 9, in <module>",
            "RuntimeError: could not reduce gradients",
        ];
        assert_eq!(weigh(&lines), Consequence);
    }

    #[test]
    fn an_own_exception_outweighs_connection_noise_around_it() {
        let lines = [
            "[W socket.cpp:697] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 111 - Connection refused).",
            "Traceback (most recent call last):",
            "  File \"train.py\", line 9, in <module>",
            "ValueError: labels and logits differ",
            "[W tcp.cpp] Broken pipe",
        ];
        assert_eq!(weigh(&lines), Cause);
    }

    #[test]
    fn long_and_odd_lines_are_bounded_and_never_cut_a_letter() {
        let line = format!("{}ModuleNotFoundError: x", "é".repeat(10_000));
        assert_eq!(code(&[&line]), None);
        let line = format!("ModuleNotFoundError: {}", "é".repeat(10_000));
        assert_eq!(recognise(&[&line]).unwrap().line.chars().count(), 500);
    }

    #[test]
    fn codes_are_told_apart() {
        let mut codes: Vec<_> = KNOWN.iter().map(|known| known.code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), KNOWN.len());
    }
}
