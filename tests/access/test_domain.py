"""Scopes and callers as values."""

import pytest

from penstock.access.domain import Caller, Scope

ORDER = [Scope.READ, Scope.WRITE, Scope.ADMIN]


@pytest.mark.parametrize("held", ORDER)
@pytest.mark.parametrize("needed", ORDER)
def test_a_scope_covers_itself_and_those_before_it(held: Scope, needed: Scope):
    assert held.covers(needed) == (ORDER.index(held) >= ORDER.index(needed))


def test_an_admin_that_is_bound_to_a_project_sees_only_that():
    assert Caller(name="a", user_id=1, scope=Scope.ADMIN).is_admin
    assert not Caller(name="a", user_id=1, scope=Scope.ADMIN, project="p").is_admin
    assert not Caller(name="a", user_id=1, scope=Scope.WRITE, role="admin").is_admin


def test_users_of_a_merchant_share_limits():
    assert Caller(name="a", user_id=5, scope=Scope.READ, merchant_id=9).tenant == "merchant:9"
    assert Caller(name="a", user_id=5, scope=Scope.READ).tenant == "user:5"


def test_audiences_are_the_user_and_the_merchant_or_only_the_project():
    assert Caller(name="a", user_id=5, scope=Scope.READ).audiences == ("user:5",)
    assert Caller(name="a", user_id=5, scope=Scope.READ, merchant_id=9).audiences == ("user:5", "merchant:9")
    bound = Caller(name="a", user_id=5, scope=Scope.READ, merchant_id=9, project="p")
    assert bound.audiences == ("project:p",)


def test_the_actor_in_the_audit_log_is_unique():
    assert Caller(name="a", user_id=5, scope=Scope.READ, key_id="key_1").actor == "key:key_1"
    assert Caller(name="a", user_id=5, scope=Scope.READ).actor == "user:5"
