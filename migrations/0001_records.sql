-- The records of Trainyard.
--
-- Rules that hold for every table here:
--   * Ids are UUIDv7, made by the program. Times come in as parameters; no column has a clock for a default.
--   * Closed sets are CHECKed here and are enums in trainyard-core (model/state.rs); open sets (reasons, event kinds,
--     condition types, audit actions) are text, listed where they are written.
--   * Growing tables are partitioned by retention class, then by range of the owner's id, which is a range of time.
--     db/partitions.rs makes the ranges ahead; the default partition only catches what it could not foresee.

-- ---------------------------------------------------------------------------------------------------------------------
-- The installation and its people
-- ---------------------------------------------------------------------------------------------------------------------

create table installation (
    singleton boolean primary key default true check (singleton),
    id uuid not null,
    created_at timestamptz not null,
    restored_at timestamptz,
    feed_position bigint not null default 0 check (feed_position >= 0),
    feed_pruned bigint not null default 0 check (feed_pruned >= 0)
);
comment on table installation is 'One row. Its id is on every label, tag and token that we write anywhere.';
comment on column installation.restored_at is 'Set by restore: workers only observe until a person confirms.';
comment on column installation.feed_position is 'The last position that the feed''s sequencer gave out.';
comment on column installation.feed_pruned is 'The highest position that retention removed; a reader that stands before it has missed events.';

create table users (
    id uuid primary key,
    name text not null check (length(name) between 1 and 128),
    admin boolean not null default false,
    created_at timestamptz not null,
    disabled_at timestamptz
);
comment on column users.admin is 'May act on the installation: clusters, nodes, users, every team.';

create table identities (
    issuer text not null,
    subject text not null,
    user_id uuid not null references users (id) on delete cascade,
    created_at timestamptz not null,
    primary key (issuer, subject)
);
comment on table identities is 'How a person is recognised. Issuer "local": this program''s one-time links. No passwords, ever.';

create table teams (
    id uuid primary key,
    name text not null unique check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    created_at timestamptz not null
);

create table team_members (
    team_id uuid not null references teams (id) on delete cascade,
    user_id uuid not null references users (id) on delete cascade,
    role text not null check (role in ('viewer', 'member', 'owner')),
    created_at timestamptz not null,
    primary key (team_id, user_id)
);
create index team_members_user on team_members (user_id);

create table signin_links (
    hash bytea primary key check (length(hash) = 32),
    user_id uuid not null references users (id) on delete cascade,
    created_at timestamptz not null,
    expires_at timestamptz not null,
    used_at timestamptz
);
comment on table signin_links is 'One-time links; the hash of the secret part, never the part.';

create table sessions (
    hash bytea primary key check (length(hash) = 32),
    user_id uuid not null references users (id) on delete cascade,
    csrf bytea not null check (length(csrf) = 32),
    created_at timestamptz not null,
    last_seen_at timestamptz not null,
    expires_at timestamptz not null
);
create index sessions_user on sessions (user_id);

create table tokens (
    id uuid primary key,
    hash bytea not null unique check (length(hash) = 32),
    user_id uuid not null references users (id) on delete cascade,
    name text not null check (length(name) between 1 and 128),
    team_id uuid references teams (id) on delete cascade,
    role text not null check (role in ('viewer', 'member', 'owner', 'admin')),
    parent_id uuid references tokens (id) on delete set null,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    check (role <> 'admin' or team_id is null)
);
comment on column tokens.team_id is 'The only team that the token reaches; null: every team of its user.';
comment on column tokens.role is 'At most this much, whatever its user may do.';
comment on column tokens.parent_id is 'The token that made it, and ends it when it is revoked itself.';
create index tokens_user on tokens (user_id);
create index tokens_parent on tokens (parent_id) where parent_id is not null;

-- ---------------------------------------------------------------------------------------------------------------------
-- Clusters and what they are made of
-- ---------------------------------------------------------------------------------------------------------------------

create table clusters (
    id uuid primary key,
    name text not null check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    provider text not null check (provider in ('local', 'kubeconfig', 'eks', 'gke')),
    machine_id text,
    phase text not null check (phase in ('pending', 'active', 'deleting', 'deleted', 'failed')),
    reason text not null,
    message text not null,
    spec jsonb not null default '{}',
    facts jsonb not null default '{}',
    generation bigint not null default 1,
    event_seq bigint not null default 0,
    stale_since timestamptz,
    observed_at timestamptz,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    deleted_at timestamptz,
    check ((provider = 'local') = (machine_id is not null))
);
comment on column clusters.machine_id is 'The one machine that a local cluster is; only a worker there holds it.';
comment on column clusters.facts is 'What the worker found: versions, limits that can be enforced, trust domain.';
comment on column clusters.stale_since is 'No worker has looked at it since; what is known of its jobs and nodes is old.';
create unique index clusters_name on clusters (name) where deleted_at is null;
create unique index clusters_machine on clusters (machine_id) where deleted_at is null;

create table cluster_grants (
    cluster_id uuid not null references clusters (id) on delete cascade,
    team_id uuid not null references teams (id) on delete cascade,
    namespace text,
    queue text,
    level text not null check (level in ('use', 'privileged')),
    created_at timestamptz not null,
    primary key (cluster_id, team_id)
);
comment on table cluster_grants is 'Which team may run where, in which namespace and queue, and with how much freedom.';

create table node_pools (
    id uuid primary key,
    cluster_id uuid not null references clusters (id) on delete cascade,
    name text not null,
    spec jsonb not null default '{}',
    created_at timestamptz not null,
    deleted_at timestamptz
);
create unique index node_pools_name on node_pools (cluster_id, name) where deleted_at is null;

create table nodes (
    id uuid primary key,
    cluster_id uuid not null references clusters (id) on delete cascade,
    node_pool_id uuid references node_pools (id) on delete set null,
    name text not null,
    identity text not null,
    phase text not null check (phase in ('ready', 'not_ready', 'gone')),
    reason text not null,
    message text not null,
    labels jsonb not null default '{}',
    capacity jsonb not null default '{}',
    allocatable jsonb not null default '{}',
    facts jsonb not null default '{}',
    usage jsonb not null default '{}',
    event_seq bigint not null default 0,
    first_seen_at timestamptz not null,
    observed_at timestamptz not null,
    stale_since timestamptz,
    gone_at timestamptz
);
comment on column nodes.identity is 'A Kubernetes node''s UID, or the machine id; the same name with another identity is another node.';
comment on column nodes.capacity is '{"cpu_milli": n, "memory_bytes": n, "gpus": n, "pods": n, "<named other>": n}; allocatable likewise.';
comment on column nodes.usage is 'The last sample; its history is in metric_chunks under the node''s id.';
create unique index nodes_identity on nodes (cluster_id, identity) where gone_at is null;
create index nodes_cluster on nodes (cluster_id, name);

create table conditions (
    subject_kind text not null check (subject_kind in ('job', 'node', 'cluster')),
    subject_id uuid not null,
    type text not null,
    status text not null check (status in ('true', 'false', 'unknown')),
    severity text not null check (severity in ('info', 'warning', 'critical')),
    reason text not null,
    message text not null,
    evidence jsonb not null default '{}',
    since timestamptz not null,
    observed_at timestamptz not null,
    primary key (subject_kind, subject_id, type)
);
comment on table conditions is 'What holds now. Every change of status or reason is also an event of the subject: the history.';

-- ---------------------------------------------------------------------------------------------------------------------
-- Jobs
-- ---------------------------------------------------------------------------------------------------------------------

create table jobs (
    id uuid primary key,
    team_id uuid not null references teams (id),
    owner_id uuid not null references users (id),
    name text not null,
    labels jsonb not null default '{}',
    document text not null,
    retention text not null check (retention in ('short', 'standard', 'long')),
    wanted text not null check (wanted in ('run', 'suspend', 'cancel', 'delete')),
    phase text not null check (phase in
        ('queued', 'starting', 'running', 'stopping', 'suspended', 'succeeded', 'failed', 'cancelled')),
    reason text not null,
    message text not null,
    priority integer not null,
    queue text,
    cluster_wanted text,
    cluster_id uuid references clusters (id),
    replicas integer not null check (replicas > 0),
    cpu_milli bigint not null check (cpu_milli >= 0),
    memory_bytes bigint not null check (memory_bytes >= 0),
    gpus integer not null check (gpus >= 0),
    generation bigint not null default 1,
    event_seq bigint not null,
    attempt integer not null default 0 check (attempt >= 0),
    step bigint,
    step_at timestamptz,
    total_steps bigint,
    why jsonb,
    origin_job_id uuid,
    origin text check (origin in ('rerun', 'clone')),
    created_at timestamptz not null,
    queued_at timestamptz not null,
    queued_seconds bigint not null default 0 check (queued_seconds >= 0),
    not_before timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    stale_since timestamptz,
    deleted_at timestamptz,
    volumes_gone_at timestamptz,
    check ((ended_at is not null) = (phase in ('succeeded', 'failed', 'cancelled'))),
    check ((origin is null) = (origin_job_id is null))
);
comment on table jobs is 'What people asked to train. Rows outlive their clusters; lists never read the document.';
comment on column jobs.document is 'The clean job document as JSON text, defaults filled in, secrets by reference only.';
comment on column jobs.reason is 'A stable code for the phase; message says it to a person.';
comment on column jobs.cluster_wanted is 'The cluster that the document names; null: any that fits. cluster_id: where it was placed.';
comment on column jobs.cpu_milli is 'Summed over all replicas, like memory_bytes and gpus, for lists and queues.';
comment on column jobs.generation is 'Counts changes of the wish (ETag); a worker''s write names the one it decided on.';
comment on column jobs.event_seq is 'The last event''s number, given out under this row''s lock, so the log has no gaps.';
comment on column jobs.attempt is 'The newest attempt''s number; 0: none yet.';
comment on column jobs.why is 'The last answer to "why does it not run", written by whoever looked at the queue.';
comment on column jobs.queued_at is 'Start of the present wait; queued_seconds sums the earlier ones.';
comment on column jobs.not_before is 'Between attempts: not admitted before this time (backoff).';
comment on column jobs.stale_since is 'The third field of a job''s state: null is fresh.';
create index jobs_team on jobs (team_id, id) where deleted_at is null;
create index jobs_owner on jobs (owner_id, id) where deleted_at is null;
create index jobs_phase on jobs (team_id, phase, id) where deleted_at is null;
create index jobs_failed on jobs (team_id, ended_at) where phase = 'failed' and deleted_at is null;
create index jobs_queue on jobs (cluster_id, priority desc, queued_at, id) where phase = 'queued';
create index jobs_active on jobs (cluster_id, id) where phase in ('starting', 'running', 'stopping');
create index jobs_labels on jobs using gin (labels jsonb_path_ops) where labels <> '{}';
create index jobs_hidden on jobs (cluster_id, id) where deleted_at is not null and volumes_gone_at is null;

create table attempts (
    id uuid primary key,
    job_id uuid not null references jobs (id) on delete cascade,
    number integer not null check (number > 0),
    cluster_id uuid not null references clusters (id),
    phase text not null check (phase in ('starting', 'running', 'stopping', 'ended')),
    outcome text check (outcome in ('succeeded', 'failed', 'cancelled', 'suspended', 'lost')),
    restart_owner text not null check (restart_owner in ('trainyard', 'operator', 'jobset', 'torchelastic')),
    reason text not null,
    message text not null,
    resume_from text,
    resume_step bigint,
    stop_cause text,
    admitted_at timestamptz not null,
    running_at timestamptz,
    stopping_at timestamptz,
    ended_at timestamptz,
    checkpoint_asked_at timestamptz,
    stop_asked_at timestamptz,
    output_stored_at timestamptz,
    released_at timestamptz,
    last_step bigint,
    kept_step bigint,
    first_failure jsonb,
    code integer,
    post_mortem jsonb,
    unique (job_id, number),
    check ((outcome is not null) = (phase = 'ended')),
    check ((ended_at is not null) = (phase = 'ended'))
);
comment on column attempts.stop_cause is 'Why it was asked to end: cancel, suspend, a deadline, a replica''s failure. Set once.';
comment on column attempts.output_stored_at is 'Every byte of output is in log_chunks; only then may the runtime release it.';
comment on column attempts.last_step is 'The last step seen; kept_step: the one of its last checkpoint. Between them lies what was lost.';
comment on column attempts.first_failure is 'Which rank failed first, and how sure that is.';
comment on column attempts.code is 'The status that the restart policy looks at: the first failure''s exit code, 128 + signal for a signal.';
comment on column attempts.post_mortem is 'Frozen when the attempt ended badly.';
create index attempts_open on attempts (cluster_id) where phase <> 'ended';
create index attempts_unreleased on attempts (cluster_id, id) where released_at is null;

create table replicas (
    attempt_id uuid not null references attempts (id) on delete cascade,
    role text not null,
    index integer not null check (index >= 0),
    rank integer not null check (rank >= 0),
    job_id uuid not null,
    phase text not null check (phase in
        ('waiting', 'starting', 'running', 'succeeded', 'failed', 'stopped', 'lost')),
    node_id uuid references nodes (id),
    gpu_indices integer[] not null default '{}',
    reason text not null,
    message text not null,
    exit_code integer,
    exit_signal integer,
    oom boolean not null default false,
    exit_unknown boolean not null default false,
    started_at timestamptz,
    ended_at timestamptz,
    last_output_at timestamptz,
    step bigint,
    step_at timestamptz,
    primary key (attempt_id, role, index)
);
create index replicas_node on replicas (node_id) where phase in ('waiting', 'starting', 'running');
create index replicas_job on replicas (job_id);

create table incarnations (
    id uuid primary key,
    attempt_id uuid not null,
    role text not null,
    index integer not null,
    number integer not null check (number > 0),
    identity text,
    created_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    exit_code integer,
    exit_signal integer,
    reason text not null,
    unique (attempt_id, role, index, number),
    foreign key (attempt_id, role, index) references replicas (attempt_id, role, index) on delete cascade
);
comment on column incarnations.identity is 'A pod''s UID, or boot id, pid and start time of a process.';

create table checkpoints (
    job_id uuid not null references jobs (id) on delete cascade,
    attempt integer not null,
    step bigint not null,
    path text not null check (length(path) between 1 and 4096),
    at timestamptz not null,
    source text not null check (source in ('line', 'api')),
    primary key (job_id, attempt, step, path)
);

create table usage_intervals (
    job_id uuid not null references jobs (id) on delete cascade,
    seq integer not null check (seq > 0),
    attempt integer not null,
    phase text not null check (phase in ('queued', 'starting', 'running')),
    kept boolean,
    from_at timestamptz not null,
    to_at timestamptz,
    replicas integer not null,
    cpu_milli bigint not null,
    memory_bytes bigint not null,
    gpus integer not null,
    node_type text,
    price_per_hour numeric,
    primary key (job_id, seq),
    check (to_at is null or to_at >= from_at)
);
comment on table usage_intervals is 'Covers a job from submission to end without gap or overlap. Suspended time has no interval.';
comment on column usage_intervals.kept is 'Of running time of an ended attempt: true up to its last checkpoint, false after it.';
create unique index usage_intervals_open on usage_intervals (job_id) where to_at is null;

create table secrets (
    id uuid primary key,
    team_id uuid not null references teams (id) on delete cascade,
    name text not null check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    version integer not null check (version > 0),
    keys text[] not null,
    key_id text not null,
    nonce bytea not null,
    ciphertext bytea not null,
    created_by uuid not null references users (id),
    created_at timestamptz not null,
    deleted_at timestamptz,
    unique (team_id, name, version)
);
comment on column secrets.ciphertext is 'A JSON object of key to value, sealed with the row''s id as associated data. Write-only through the API.';

create table code_archives (
    digest text not null check (digest ~ '^sha256:[0-9a-f]{64}$'),
    team_id uuid not null references teams (id) on delete cascade,
    bytes bigint not null check (bytes >= 0),
    data bytea not null,
    created_by uuid not null references users (id),
    created_at timestamptz not null,
    primary key (team_id, digest)
);

comment on table code_archives is 'Uploaded code by content. Two teams that upload the same bytes have a row each, so neither sees the other''s.';

create table checks (
    id uuid primary key,
    kind text not null,
    cluster_id uuid references clusters (id) on delete cascade,
    requested_by uuid references users (id),
    question jsonb not null,
    phase text not null check (phase in ('waiting', 'answered', 'failed')),
    answer jsonb,
    created_at timestamptz not null,
    answered_at timestamptz,
    check ((answered_at is not null) = (phase <> 'waiting'))
);
create index checks_cluster on checks (cluster_id, id);
create index checks_waiting on checks (created_at) where phase = 'waiting';
comment on table checks is 'A question to a cluster or a cloud. The web writes it; a worker answers it.';

-- ---------------------------------------------------------------------------------------------------------------------
-- Work
-- ---------------------------------------------------------------------------------------------------------------------

create table workers (
    id uuid primary key,
    machine_id text not null,
    version text not null,
    started_at timestamptz not null,
    heartbeat_at timestamptz not null
);

create table tasks (
    kind text not null,
    subject_id uuid not null,
    machine_id text,
    wake_at timestamptz not null,
    pokes bigint not null default 1,
    claimed_pokes bigint not null default 0,
    lease_token uuid,
    lease_worker uuid,
    failures integer not null default 0,
    last_error text,
    created_at timestamptz not null,
    primary key (kind, subject_id)
);
comment on table tasks is 'One row per thing to look at. A poke says which, never what changed.';
comment on column tasks.machine_id is 'Only a worker on this machine can do it; null: any.';
comment on column tasks.wake_at is 'When it is due. A claim moves it to the end of the lease, so a claimed row is not due.';
comment on column tasks.pokes is 'Counts pokes; one that arrives during the work makes the row due again at its end.';
comment on column tasks.lease_token is 'Every write by the worker checks it.';
create index tasks_due on tasks (wake_at);

create table holdings (
    kind text not null,
    subject_id uuid not null,
    shard integer not null,
    worker_id uuid not null,
    fence bigint not null,
    acquired_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (kind, subject_id, shard)
);
comment on table holdings is 'Long-lived work: who has it, until when. Every write carries the fence.';

create table idempotency_keys (
    actor_id uuid not null,
    route text not null,
    key text not null check (length(key) between 1 and 255),
    body_digest bytea not null check (length(body_digest) = 32),
    subject_id uuid not null,
    created_at timestamptz not null,
    primary key (actor_id, route, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

create table log_follows (
    job_id uuid primary key,
    until_at timestamptz not null
);
comment on table log_follows is 'Someone reads these logs live: their flushes come every 50 ms until then.';

-- ---------------------------------------------------------------------------------------------------------------------
-- What grows: partitioned by retention class, then by range of the owner's id
-- ---------------------------------------------------------------------------------------------------------------------

create table events (
    class text not null check (class in ('short', 'standard', 'long', 'installation')),
    owner_id uuid not null,
    seq bigint not null check (seq > 0),
    owner_kind text not null check (owner_kind in ('job', 'node', 'cluster')),
    team_id uuid,
    at timestamptz not null,
    kind text not null,
    actor_id uuid,
    message text not null,
    data jsonb not null default '{}',
    feed_position bigint,
    primary key (class, owner_id, seq)
) partition by list (class);
comment on column events.team_id is 'The job''s team; null: of the installation.';
comment on column events.feed_position is 'Place in the feed across subjects, given after commit by the feed''s one holder.';
create index events_unsequenced on events (at, owner_id, seq) where feed_position is null;
create index events_feed on events (feed_position) where feed_position is not null;

create table audit (
    class text not null check (class = 'installation'),
    id uuid not null,
    at timestamptz not null,
    actor_id uuid,
    token_id uuid,
    action text not null,
    subject_kind text not null,
    subject_id uuid,
    team_id uuid,
    detail jsonb not null default '{}',
    request_id text,
    primary key (class, id)
) partition by list (class);

create table log_streams (
    class text not null check (class in ('short', 'standard', 'long')),
    job_id uuid not null,
    id uuid not null,
    attempt integer not null,
    attempt_id uuid not null,
    role text not null,
    index integer not null,
    rank integer not null,
    incarnation_id uuid not null,
    container text not null default 'main',
    restart integer not null default 0,
    stream text not null check (stream in ('stdout', 'stderr', 'mixed')),
    bytes bigint not null default 0,
    lines bigint not null default 0,
    line_start bigint not null default 0,
    stored_bytes bigint not null default 0,
    source_offset bigint not null default 0,
    dropped_bytes bigint not null default 0,
    ingest_state bytea,
    first_at timestamptz,
    last_at timestamptz,
    ended_at timestamptz,
    removed_at timestamptz,
    primary key (class, job_id, id)
) partition by list (class);
comment on column log_streams.bytes is 'Stored, after masking; source_offset counts what the process wrote and was read.';
comment on column log_streams.lines is 'Line ends stored; the text after the last one is the unfinished line.';
comment on column log_streams.line_start is 'The offset at which the unfinished line begins.';
comment on column log_streams.stored_bytes is 'What its chunks take after compression; limits by size count this.';
comment on column log_streams.ingest_state is
    'What the reader carries from one flush to the next: how far a masked secret reaches beyond source_offset, and the unfinished line for catching metrics.';
comment on column log_streams.last_at is
    'Time of the last flush. Strictly greater than that of the flush before it in the same attempt, so that it orders and resumes reads.';
comment on column log_streams.removed_at is 'Retention took its chunks.';
create index log_streams_attempt on log_streams (attempt_id);
create index log_streams_kept on log_streams (job_id, attempt_id) where removed_at is null;

create table log_chunks (
    class text not null check (class in ('short', 'standard', 'long')),
    job_id uuid not null,
    stream_id uuid not null,
    byte_offset bigint not null,
    bytes bigint not null check (bytes >= 0),
    first_line bigint not null,
    lines bigint not null,
    kind text not null check (kind in ('output', 'gap')),
    gap_reason text,
    gap_bytes bigint,
    place smallint not null,
    line_start bigint not null,
    first_at timestamptz not null,
    last_at timestamptz not null,
    marks bytea not null default '',
    sealed boolean not null,
    codec text not null check (codec in ('raw', 'zstd')),
    location text not null default 'postgres',
    data bytea,
    primary key (class, job_id, stream_id, byte_offset, place),
    check ((kind = 'output') = (place = 32767)),
    check ((kind = 'gap') = (bytes = 0))
) partition by list (class);
comment on table log_chunks is 'A stream''s stored bytes in order, cut anywhere. Small unsealed rows are merged into sealed ones of about 1 MiB.';
comment on column log_chunks.first_line is 'How many line ends the stream had before this chunk.';
comment on column log_chunks.line_start is 'The offset at which the line begins that this chunk begins in.';
comment on column log_chunks.place is 'Order among rows at one offset: gaps count from 0, the output after them has 32767.';
comment on column log_chunks.marks is
    'Where each flush after the first begins: pairs of varints, bytes and milliseconds since the mark before it. The first flush has first_at.';
create index log_chunks_lines on log_chunks (job_id, stream_id, first_line, byte_offset) where sealed;
create index log_chunks_times on log_chunks (job_id, stream_id, last_at, byte_offset) where sealed;
create index log_chunks_unsealed on log_chunks (job_id, stream_id, byte_offset) where not sealed;

create table metric_chunks (
    class text not null check (class in ('short', 'standard', 'long', 'installation')),
    owner_id uuid not null,
    attempt integer not null,
    role text not null,
    index integer not null,
    series text not null check (length(series) between 1 and 64),
    seq bigint not null,
    steps bigint[] not null,
    times bigint[] not null,
    vals double precision[] not null,
    first_at timestamptz not null,
    last_at timestamptz not null,
    sealed boolean not null default false,
    outline_steps bigint[],
    outline_times bigint[],
    outline_vals double precision[],
    primary key (class, owner_id, attempt, series, role, index, seq),
    check (cardinality(steps) = cardinality(vals) and cardinality(times) = cardinality(vals)),
    check (cardinality(outline_steps) = cardinality(outline_vals) and cardinality(outline_times) = cardinality(outline_vals))
) partition by list (class);
create index metric_chunks_unsealed on metric_chunks (owner_id) where not sealed;
comment on table metric_chunks is 'Points of one series of one replica (owner: a job) or of one node (attempt 0, role ""). Never a row per point.';
comment on column metric_chunks.outline_vals is 'Of a sealed row: the points that a plot of the whole series needs.';
comment on column metric_chunks.steps is 'A null element: the point has a time and no step. times: ms since 1970.';

-- One sub-table per class, ranged by owner; each with a default range. Jobs' rows go with their range once all its jobs
-- are old; nodes and clusters live on, so theirs go by age.
do $$
declare
    parent text;
    range_column text;
    class text;
begin
    for parent, range_column in
        values ('events', 'owner_id'), ('audit', 'id'), ('log_streams', 'job_id'), ('log_chunks', 'job_id'),
               ('metric_chunks', 'owner_id')
    loop
        foreach class in array array['short', 'standard', 'long', 'installation'] loop
            continue when parent = 'audit' and class <> 'installation';
            continue when parent in ('log_streams', 'log_chunks') and class = 'installation';
            execute format('create table %I partition of %I for values in (%L) partition by range (%I)',
                           parent || '_' || class, parent, class, range_column);
            execute format('create table %I partition of %I default', parent || '_' || class || '_default',
                           parent || '_' || class);
        end loop;
    end loop;
end $$;

create index events_installation_age on events_installation (at);
create index metric_chunks_installation_age on metric_chunks_installation (last_at);

-- Bytes that are compressed already gain nothing from a second look.
do $$
declare
    leaf regclass;
begin
    for leaf in select relid from pg_partition_tree('log_chunks') where isleaf loop
        execute format('alter table %s alter column data set storage external', leaf);
    end loop;
end $$;
