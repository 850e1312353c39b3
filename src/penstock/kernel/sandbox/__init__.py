"""The sandbox: where foreign bytes are touched.

Parsers of foreign files can be made to hang, to eat memory, to crash, and at worst to run someone else's code. So none
of them runs in our own processes. `Sandbox.run` sends the name of a function, a few plain values and an open file to a
child process, and gets back a value or the way the child ended. `Sandbox.sitting` keeps a child for several calls about
one file.

    caller (asyncio)                 zygote (one thread)                child (one per call or sitting)
    call.py    run, restart          zygote.py  fork, kill late, bury   child.py  limits, the function, the answer
    sitting.py calls in one child, seats
    orders.py  what is asked
    link.py    orders and reports ── wire.py ── walls.py  made ready    seccomp.py  which system calls (syscalls.py)
    answer.py  bounded reading   ←────────── pipe ────────────────────  landlock.py  which files
    ends.py    how it ended, as errors                                  linux.py  what Python lacks

Whatever happens to one of the three, those to the right of it die with it, by the kernel's own hand. A child that dies
is an answer about its file. A zygote that dies is our own trouble: its calls may be tried again.
"""
