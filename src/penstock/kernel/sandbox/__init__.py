"""The sandbox: untrusted files are only parsed here.

A parser of untrusted files can be made to hang, to exhaust memory, to crash, and at worst to run an attacker's code. So
no parser runs in our own processes. `Sandbox.run` sends the name of a function, a few plain values and an open file to
a child process, and gets back a value or the way the child ended. `Sandbox.session` keeps one child for several calls
about one file.

    caller (asyncio)                    zygote (one thread)              child (one per call or session)
    call.py     run, restart            zygote.py  fork, kill, reap      child.py  limits, the function, the result
    session.py  calls in one child, slots for children
    request.py  function, arguments, file
    zygote_client.py  requests, reports ── wire.py ── isolation.py       seccomp.py  which system calls (syscalls.py)
    pipe.py     bounded reading       ←────────── pipe ────────────────  landlock.py  which files
    result.py   value or error (errors.py, limits.py)                    linux.py  system calls that Python lacks

When one of the three dies, the kernel kills those to the right of it (PR_SET_PDEATHSIG). The death of a child is a
verdict on its file. A zygote that dies is an infrastructure failure: its calls may be retried.
"""
