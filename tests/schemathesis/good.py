"""A good request for every operation, on things that were made for it. An operation that is not here fails the suite."""

import io
import tarfile
import uuid

from served import example


class World:
    """Something of everything that has an id."""

    def __init__(self, served):
        self.served = served
        made = served.made
        self.me = served.get("/api/v1/me")
        self.home = served.get("/api/v1/teams")["items"][0]
        here = served.get("/api/v1/clusters")["items"][0]
        # Jobs name it, so that none goes to the machine that dies.
        self.cluster, self.cluster_name = here["id"], here["name"]
        self.node = served.get("/api/v1/nodes")["items"][0]["id"]
        self.dead = served.machine_that_died()
        self.failed = self.job("fails-at-once", ["sh", "-c", "echo out; echo step=1 loss=0.5; echo err >&2; exit 3"])
        self.running = self.job("runs-on", ["sleep", "600"])
        self.team = made("POST", "/api/v1/teams", {"name": "good-team"})["id"]
        self.user = made("POST", "/api/v1/users", {"name": "Good"})["id"]
        self.archive = made("POST", "/api/v1/code?team=" + self.home["name"], archive(b"a"),
                            {"Content-Type": "application/x-tar"})["digest"]
        self.check = made("POST", "/api/v1/checks", {"kind": "cluster.look", "cluster": self.cluster})["id"]
        served.job_until(self.running, ["running"])
        served.job_until(self.failed, ["failed"])
        # The post-mortem is frozen once the last output is stored.
        served.until(lambda: served.send("GET", f"/api/v1/jobs/{self.failed}/post-mortem")[0] == 200, 60, "a post-mortem")

    def job(self, name, command):
        document = {
            "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": name, "team": self.home["name"],
            "labels": {"suite": "schemathesis"}, "restart": {"max": 0}, "cluster": self.cluster_name,
            "roles": [{"name": "main", "command": command, "resources": {"cpu": "10m", "memory": "32Mi"}}],
        }
        return self.served.made("POST", "/api/v1/jobs", document)["id"]

    def waiting(self):
        """A job that no machine has room for: it waits until somebody wishes otherwise."""
        document = example("too-big") | {"name": "waits", "team": self.home["name"]}
        return self.served.made("POST", "/api/v1/jobs", document)["id"]

    def suspended(self):
        job = self.waiting()
        self.served.made("POST", f"/api/v1/jobs/{job}/suspend")
        self.served.job_until(job, ["suspended"])
        return job

    def person(self):
        return self.served.made("POST", "/api/v1/users", {"name": "Spare"})["id"]

    def token(self):
        return self.served.made("POST", "/api/v1/tokens", {"name": "spare", "role": "viewer"})["id"]

    def member(self):
        person = self.person()
        self.served.made("PUT", f"/api/v1/teams/{self.team}/members/{person}", {"role": "viewer"})
        return person

    def secret(self):
        name = "spare-" + uuid.uuid4().hex[:8]
        self.served.made("PUT", f"/api/v1/secrets/{name}?team={self.home['name']}", {"values": {"key": "value"}})
        return name

    def silent(self):
        """The other machine's node, once it is known that nobody looks after it."""
        path = f"/api/v1/nodes/{self.dead}"
        self.served.until(lambda: self.served.get(path)["stale_since"], 60, "the other machine to be missed")
        return self.dead

    def granted(self):
        team = self.served.made("POST", "/api/v1/teams", {"name": "granted-" + uuid.uuid4().hex[:8]})["id"]
        self.served.made("PUT", f"/api/v1/clusters/{self.cluster}/grants/{team}", {"level": "use"})
        return team


def archive(content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        entry = tarfile.TarInfo("main.py")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def requests(world):
    """Operation id to the parts of its request: path, query, headers, body, media type. Made when it is asked for."""
    team = {"team": world.home["name"]}
    json = {"media_type": "application/json"}

    def path(**ids):
        return lambda: {"path_parameters": ids}

    def body(value, **more):
        return lambda: {"body": value, **json, **more}

    of_failed, of_running = path(job=world.failed), path(job=world.running)
    of_cluster, of_node = path(cluster=world.cluster), path(node=world.node)
    nothing = lambda: {}
    document = example("single") | {"name": "made-by-hand", "team": world.home["name"], "cluster": world.cluster_name}
    document["env"] = document["env"] | {"PACE": "0"}
    return {
        "healthz": nothing, "readyz": nothing, "job_schema": nothing, "get_me": nothing, "get_installation": nothing,
        "get_feed": nothing, "list_jobs": nothing, "list_clusters": nothing, "list_nodes": nothing,
        "confirm_restore": nothing, "list_users": nothing, "list_teams": nothing,
        "list_tokens": nothing, "list_audit": nothing,
        "list_secrets": lambda: {"query": team},
        "create_job": body(document),
        "get_job": of_failed, "clone_job": of_failed, "list_attempts": of_failed, "list_replicas": of_failed,
        "list_incarnations": of_failed, "list_job_events": of_failed, "list_job_conditions": of_failed,
        "list_checkpoints": of_failed, "get_job_metrics": of_failed, "get_usage": of_failed, "get_why": of_failed,
        "get_post_mortem": of_failed, "list_log_streams": of_failed, "read_logs": of_failed,
        "download_logs": of_failed, "follow_logs": of_failed,
        "search_logs": lambda: {"path_parameters": {"job": world.failed}, "query": {"pattern": "out"}},
        "get_attempt": path(job=world.failed, number=1),
        "report_metrics": body({"points": [{"series": "loss", "value": 0.5, "step": 1}]},
                               path_parameters={"job": world.running}),
        "report_checkpoint": body({"step": 1, "path": "/tmp/1"}, path_parameters={"job": world.running}),
        "change_job": body({"priority": 5}, path_parameters={"job": world.running}, headers={"If-Match": "*"}),
        "cancel_job": lambda: {"path_parameters": {"job": world.waiting()}},
        "suspend_job": lambda: {"path_parameters": {"job": world.waiting()}},
        "resume_job": lambda: {"path_parameters": {"job": world.suspended()}},
        "rerun_job": of_failed,
        "delete_job": lambda: {"path_parameters": {"job": world.waiting()}},
        "get_cluster": of_cluster, "list_cluster_conditions": of_cluster, "list_cluster_events": of_cluster,
        "list_node_pools": of_cluster, "list_grants": of_cluster,
        "put_grant": body({"level": "use"}, path_parameters={"cluster": world.cluster, "team": world.team}),
        "remove_grant": lambda: {"path_parameters": {"cluster": world.cluster, "team": world.granted()}},
        "get_node": of_node, "list_node_conditions": of_node, "list_node_events": of_node,
        "get_node_metrics": of_node, "list_node_replicas": of_node,
        "declare_gone": lambda: {"path_parameters": {"node": world.silent()}},
        "ask_check": body({"kind": "cluster.look", "cluster": world.cluster}),
        "get_check": path(check=world.check),
        "put_secret": body({"values": {"key": "value"}}, path_parameters={"name": "good"}, query=team),
        "delete_secret": lambda: {"path_parameters": {"name": world.secret()}, "query": team},
        "upload_code": lambda: {"body": archive(b"b"), "media_type": "application/octet-stream", "query": team},
        "get_code": lambda: {"path_parameters": {"digest": world.archive}, "query": team},
        "create_user": body({"name": "Another"}), "get_user": path(user=world.user),
        "change_user": body({"name": "Renamed"}, path_parameters={"user": world.user}),
        "invite_user": path(user=world.user),
        "create_team": body({"name": "made-by-hand"}), "get_team": path(team=world.team),
        "list_members": path(team=world.team),
        "put_member": body({"role": "member"}, path_parameters={"team": world.team, "user": world.user}),
        "remove_member": lambda: {"path_parameters": {"team": world.team, "user": world.member()}},
        "create_token": body({"name": "made-by-hand", "role": "viewer"}),
        "revoke_token": lambda: {"path_parameters": {"token": world.token()}},
    }


def seeds(world):
    """Ids that made-up requests use. What a request may use up is there several times, and is nobody's that we need."""
    several = lambda make: [make() for _ in range(3)]
    waiting = {"job": several(world.waiting)}
    return {
        "path": {
            "job": [world.failed], "cluster": [world.cluster], "node": [world.node], "team": [world.team],
            "user": several(world.person), "token": several(world.token), "check": [world.check],
            "digest": [world.archive], "name": several(world.secret), "number": [1],
        },
        "special": {
            "delete_job": {"job": several(world.waiting)}, "cancel_job": {"job": several(world.waiting)},
            "suspend_job": waiting, "resume_job": waiting, "change_job": waiting,
            "report_metrics": {"job": [world.running]}, "report_checkpoint": {"job": [world.running]},
        },
    }
