# A script that fails: its status is what the run returns.
echo "this script fails"
exit 3
