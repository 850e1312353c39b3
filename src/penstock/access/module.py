"""Access as a `ModuleSpec`: built from the settings and the verifier of JWTs."""

from datetime import timedelta

from penstock.access import api, worker
from penstock.access.allowed_hosts import AllowedHosts
from penstock.access.api.logins import Logins
from penstock.access.authenticate import Authenticator
from penstock.access.passwords import Passwords
from penstock.access.tokens import Tokens
from penstock.kernel.db import Db
from penstock.kernel.module import BackgroundTask, ModuleSpec
from penstock.kernel.processes import ProcessKind
from penstock.settings import Settings

ENVELOPE = tuple(f"/api/v1/{path}" for path in ("api-keys", "auth/", "users", "audit"))


def access_module(settings: Settings, db: Db, tokens: Tokens) -> ModuleSpec:
    """Keys, logins and the audit log; the other modules authenticate their callers with `app.state.access`."""
    authenticator = Authenticator(db, tokens=tokens, confine_keys=settings.merchant_projects == "keys")
    logins = Logins(
        db,
        Passwords(),
        attempts=settings.login_attempts,
        lock_seconds=settings.login_lock_seconds,
        session_seconds=settings.session_seconds,
    )
    audit, lock = timedelta(days=settings.audit_days), timedelta(seconds=settings.login_lock_seconds)
    return ModuleSpec(
        name="access",
        routers=api.ROUTERS,
        state={
            "access": authenticator,
            "logins": logins,
            "hosts": AllowedHosts.of(settings.allowed_hosts, settings.cors_origins),
        },
        envelope=ENVELOPE,
        periodic_tasks=[worker.cleaner(db, audit_age=audit, lock=lock)],
        background=[  # only a server has callers
            BackgroundTask(run=authenticator.run, kinds=frozenset({ProcessKind.SERVE}))
        ],
    )
