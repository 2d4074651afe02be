package intercept

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h.
const tableOwner = 2

// claim makes sure that at most one living process in this network namespace has the thing that the error names. The
// claim is an empty table of nf_tables that belongs to one netlink socket: nobody else can make, change or delete a
// table of that name, and making one takes CAP_NET_ADMIN. The kernel deletes it with the socket, however the process
// ends. Before Linux 5.12, which has no such tables, it is an abstract socket, whose name any local user can take.
func claim(table, thing string) (io.Closer, error) {
	c, err := ownTable(table)
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EEXIST):
		if exists(table) {
			return nil, fmt.Errorf("intercept: %s belongs to another gradproxy that runs in this network namespace (nft list table inet %s shows its name): stop that one, or name this site otherwise", thing, table)
		}
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.EINVAL):
		return claimSocket(table, thing)
	}
	if err != nil {
		return nil, explain(err)
	}
	return c, nil
}

// ownTable makes an empty table that the returned netlink socket owns. google/nftables makes tables without flags only.
func ownTable(name string) (io.Closer, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: append([]byte(name), 0)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binary.BigEndian.AppendUint32(nil, tableOwner)},
	})
	if err == nil {
		_, err = conn.SendMessages([]netlink.Message{
			batch(unix.NFNL_MSG_BATCH_BEGIN),
			{
				Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
					Flags: netlink.Request | netlink.Acknowledge | netlink.Create | netlink.Excl},
				Data: append([]byte{byte(nftables.TableFamilyINet), unix.NFNETLINK_V0, 0, 0}, attributes...),
			},
			batch(unix.NFNL_MSG_BATCH_END),
		})
	}
	if err == nil {
		_, err = conn.Receive()
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// batch is the message that begins or ends a transaction of nf_tables.
func batch(kind netlink.HeaderType) netlink.Message {
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request},
		Data: []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}}
}

// exists reports whether there is such a table. Without CAP_NET_ADMIN nothing is seen.
func exists(table string) bool {
	conn, err := nftables.New()
	if err != nil {
		return false
	}
	t, err := conn.ListTableOfFamily(table, nftables.TableFamilyINet)
	return err == nil && t != nil
}

// claimSocket is claim by an abstract socket, which is bound to the network namespace, as tables are, and goes with its
// process.
func claimSocket(name, thing string) (io.Closer, error) {
	l, err := net.Listen("unix", "@"+name)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("intercept: %s belongs to another gradproxy that runs in this network namespace, or something else has the abstract socket @%s (ss -xp): stop that, or name this site otherwise", thing, name)
	}
	if err != nil {
		return nil, fmt.Errorf("intercept: claim %s: %w", thing, err)
	}
	return l, nil
}
