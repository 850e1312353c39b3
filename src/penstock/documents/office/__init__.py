"""Office Open XML: docx, pptx and xlsx as blocks, read as streams from a checked zip archive.

package.py         the zip archive: limits, parts, relationships
xml_names.py       elements and attributes without their namespaces
docx.py            Word documents; styles.py resolves headings and lists
pptx.py            presentations
xlsx.py            workbooks; sheet_rows.py streams rows, number_formats.py formats dates and numbers
"""
