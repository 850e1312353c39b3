"""The routes of the etl module, each with a valid body, for the matrix of callers."""

ETL = "/api/v1/etl"
DOCUMENT = {"project_id": 7, "filename": "matrix.md"}
RULE = {"name": "Matrix", "postprocess_mode": "skip"}
ETL_ROUTES: dict[tuple[str, str], object] = {
    ("POST", f"{ETL}/submit"): DOCUMENT,
    ("POST", f"{ETL}/upload_and_submit"): None,
    ("GET", f"{ETL}/tasks"): None,
    ("GET", f"{ETL}/tasks/batch"): None,
    ("GET", f"{ETL}/tasks/{{task_id}}"): None,
    ("GET", f"{ETL}/tasks/{{task_id}}/result"): None,
    ("GET", f"{ETL}/tasks/{{task_id}}/markdown"): None,
    ("GET", f"{ETL}/tasks/{{task_id}}/pages"): None,
    ("GET", f"{ETL}/tasks/{{task_id}}/grounding"): None,
    ("POST", f"{ETL}/tasks/{{task_id}}/cancel"): None,
    ("POST", f"{ETL}/tasks/{{task_id}}/retry"): None,
    ("POST", f"{ETL}/tasks/retry"): {"status": "failed", "error_code": "NOTHING"},
    ("DELETE", f"{ETL}/tasks/{{task_id}}"): None,
    ("GET", f"{ETL}/tasks/{{task_id}}/corrections"): None,
    ("POST", f"{ETL}/tasks/{{task_id}}/corrections"): {"reviewed": True},
    ("DELETE", f"{ETL}/tasks/{{task_id}}/corrections/{{correction_id}}"): None,
    ("GET", f"{ETL}/rules/{{rule_id}}/corrections"): None,
    ("GET", f"{ETL}/rules/{{rule_id}}/accuracy"): None,
    ("GET", f"{ETL}/rules"): None,
    ("POST", f"{ETL}/rules"): RULE,
    ("GET", f"{ETL}/rules/{{rule_id}}"): None,
    ("PUT", f"{ETL}/rules/{{rule_id}}"): {"description": "Seen by the matrix."},
    ("DELETE", f"{ETL}/rules/{{rule_id}}"): None,
    ("GET", f"{ETL}/rules/{{rule_id}}/versions"): None,
    ("POST", f"{ETL}/rules/{{rule_id}}/try"): {"markdown": "Total: 12.50"},
    ("GET", f"{ETL}/orphans"): None,
    ("GET", f"{ETL}/health"): None,
}
