"""Storms: many processes, some of them killed or stopped at random, and a recorded history that is then checked.

`kills.py` kills workers under load, `rivals.py` lets claimers race for the same rows. The tests run short storms with a
seed; `bench/` runs the long ones.
"""
